"""Trains two Doom players who share their reward, with a critic that sees through the eyes of both.

    python examples/team_doom.py train --experiment=team --centralized_critic=True
    python examples/team_doom.py enjoy --experiment=team

The env is doom_duel with two bots as opponents; --env=team_NAME takes any other doom_ env of several agents.
The policy plays the plain env too: enjoy with --env=doom_duel.
"""

import sys
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.enjoy import main as enjoy
from sample_factory.families.doom.doom_family import DoomFlags, doom_defaults
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.train import main as train

PREFIX = "team_"


class SharedReward(gym.Wrapper):
    """A multi-agent env in which each agent gets the mean reward of all agents."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.is_multiagent = True
        self.num_agents = env.num_agents

    def step(self, actions: list[Any]) -> Any:
        observations, rewards, *ends = self.env.step(actions)
        return observations, [float(np.mean(rewards))] * self.num_agents, *ends


def make_env(full_env_name: str, cfg, env_config=None, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    return SharedReward(make_doom_env(full_env_name.removeprefix(PREFIX), cfg, env_config, render_mode))


def defaults(full_env_name: str) -> dict[str, Any]:
    """Returns the defaults of the Doom env, with two bots."""
    return {**doom_defaults(full_env_name.removeprefix(PREFIX)), "num_bots": 2}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env(PREFIX, make_env, DoomFlags, defaults, follows_observation=False)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    env = [] if any(word.startswith("--env=") for word in argv) else [f"--env={PREFIX}doom_duel"]
    return commands[argv[0]]([*env, *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
