"""Trains on an env that is registered with Gymnasium, with your own wrapper and defaults.

Without a wrapper, an env needs no script:

    python -m sample_factory.train --env=gym_CartPole-v1 --experiment=cartpole
    python -m sample_factory.train --env=gym_my_package:MyEnv-v0 --experiment=mine

The second imports `my_package`, which registers MyEnv-v0 with Gymnasium. Envs with a wrapper, here one that
repeats actions, are a family of their own with another prefix:

    python examples/gym_env.py train --env=sticky_CartPole-v1 --experiment=sticky
    python examples/gym_env.py enjoy --experiment=sticky
"""

import sys
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sample_factory import register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

PREFIX = "sticky_"
DEFAULTS = {"num_envs_per_worker": 16, "train_for_env_steps": 200_000}


@dataclass(frozen=True)
class StickyFlags:
    """Flags of sticky envs."""

    stickiness: float = flag(0.1, "probability that the previous action is repeated", at_least=0, at_most=1)


class StickyActions(gym.Wrapper):
    """Replaces the action by the previous one with a given probability."""

    def __init__(self, env: gym.Env, stickiness: float):
        super().__init__(env)
        self._stickiness = stickiness
        self._previous_action: Any = None

    def reset(self, **kwargs: Any):
        self._previous_action = None
        return self.env.reset(**kwargs)

    def step(self, action: Any):
        # The env's own generator, so that the seed of a run also determines the repetitions.
        if self._previous_action is None or self.np_random.random() >= self._stickiness:
            self._previous_action = action
        return self.env.step(self._previous_action)


def make_sticky_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    env = gym.make(full_env_name.removeprefix(PREFIX), render_mode=render_mode)
    return StickyActions(env, cfg.stickiness)


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env(PREFIX, make_sticky_env, StickyFlags, DEFAULTS)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        usage = f"usage: python {sys.argv[0]} train|enjoy --env={PREFIX}ID --experiment=NAME [flags]"
        print(usage, file=sys.stderr)
        return 2
    return commands[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
