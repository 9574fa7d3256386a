"""Trains Doom with a critic that knows where the agent is, which the agent itself does not know.

    python examples/critic_only_doom.py train --experiment=located --critic_only_keys=position
    python examples/critic_only_doom.py enjoy --experiment=located

The env is doom_my_way_home; --env=located_NAME takes any scenario of the doom_ family with one agent. The
policy plays the plain env too: enjoy with --env=doom_my_way_home.
"""

import sys

import gymnasium as gym
import numpy as np
from vizdoom import GameVariable

from sample_factory import register_env
from sample_factory.enjoy import main as enjoy
from sample_factory.families.doom.doom_env import DoomEnv
from sample_factory.families.doom.doom_family import DoomFlags, doom_defaults
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.make_doom_env import doom_spec, engine_settings
from sample_factory.train import main as train

PREFIX = "located_"
VARIABLES = (GameVariable.POSITION_X, GameVariable.POSITION_Y, GameVariable.ANGLE)


class Located(gym.ObservationWrapper):
    """Adds `position`, float32 [4]: x and y in units of the map, sine and cosine of the direction."""

    def __init__(self, env: gym.Env, engine: DoomEngine):
        super().__init__(env)
        position = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.observation_space = gym.spaces.Dict({**env.observation_space.spaces, "position": position})
        self._engine = engine

    def observation(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x, y, degrees = (self._engine.game.get_game_variable(variable) for variable in VARIABLES)
        angle = np.deg2rad(degrees)
        return {**observation, "position": np.array([x, y, np.sin(angle), np.cos(angle)], np.float32)}


def make_env(full_env_name: str, cfg, env_config=None, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    name = full_env_name.removeprefix(PREFIX)
    spec = doom_spec(name)
    engine = DoomEngine(engine_settings(name, spec, cfg))
    return Located(DoomEnv(spec, engine, cfg.env_frameskip, (cfg.res_w, cfg.res_h), render_mode), engine)


def defaults(full_env_name: str) -> dict:
    """Returns the defaults of the Doom env."""
    return doom_defaults(full_env_name.removeprefix(PREFIX))


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env(PREFIX, make_env, DoomFlags, defaults, follows_observation=False)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    env = [] if any(word.startswith("--env=") for word in argv) else [f"--env={PREFIX}doom_my_way_home"]
    return commands[argv[0]]([*env, *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
