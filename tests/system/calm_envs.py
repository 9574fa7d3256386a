"""A user's script: envs that sleep in each step, for runs that only have to go on while a test watches them;
at full speed they would take the cores from other tests. `python calm_envs.py --env=calm_pole ...`, or
`--env=calm_doom_basic` for the env `doom_basic`.
"""

import sys
import time

import gymnasium as gym

from sample_factory import register_env
from sample_factory.families.doom.doom_family import DoomFlags, doom_defaults
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.train import main

PREFIX = "calm_"
STEP_SECONDS = 0.01


def calmed(env):
    """Returns the env; from now on, it sleeps in each step."""
    step = env.step

    def slow_step(action):
        time.sleep(STEP_SECONDS)
        return step(action)

    env.step = slow_step
    return env


def make_doom(full_env_name, cfg, env_config, render_mode=None):
    return calmed(make_doom_env(full_env_name.removeprefix(PREFIX), cfg, env_config, render_mode))


register_env("calm_pole", lambda: calmed(gym.make("CartPole-v1")))
register_env(
    "calm_doom_",
    make_doom,
    DoomFlags,
    lambda full_env_name: doom_defaults(full_env_name.removeprefix(PREFIX)),
)

if __name__ == "__main__":
    sys.exit(main())
