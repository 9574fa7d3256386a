"""Any env that Gymnasium knows, with a wrapper and defaults of your own.

As it is, an env needs no script:

    python -m sample_factory.train --env=gym_CartPole-v1 --experiment=cartpole
    python -m sample_factory.train --env=gym_my_package:MyEnv-v0 --experiment=mine

The second imports `my_package`, which registers MyEnv-v0 with Gymnasium. With a wrapper around them, here one
that makes controls stick, they are a family of their own, whose names begin with another prefix:

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
from sample_factory.envs.gym_family import gym_defaults
from sample_factory.train import main as train

PREFIX = "sticky_"


@dataclass(frozen=True)
class StickyFlags:
    """Flags of sticky envs."""

    stickiness: float = flag(0.1, "how often the last action is taken again, 0 to 1", at_least=0, at_most=1)


class StickyActions(gym.Wrapper):
    """Sometimes the env gets the previous action once more instead of the new one."""

    def __init__(self, env: gym.Env, stickiness: float):
        super().__init__(env)
        self._stickiness = stickiness
        self._previous_action: Any = None

    def reset(self, **kwargs: Any):
        self._previous_action = None
        return self.env.reset(**kwargs)

    def step(self, action: Any):
        # The env's own generator: the seed of a run determines the wrapper's part too.
        if self._previous_action is None or self.np_random.random() >= self._stickiness:
            self._previous_action = action
        return self.env.step(self._previous_action)


def make_sticky_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: one env."""
    env = gym.make(full_env_name.removeprefix(PREFIX), render_mode=render_mode)
    return StickyActions(env, cfg.stickiness)


def sticky_defaults(full_env_name: str) -> dict[str, Any]:
    """Those of envs without a wrapper, and how long to train."""
    return {**gym_defaults(full_env_name), "num_envs_per_worker": 16, "train_for_env_steps": 200_000}


def main(argv: list[str]) -> int:
    """`train` or `enjoy`, then flags."""
    register_env(PREFIX, make_sticky_env, StickyFlags, sticky_defaults)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        usage = f"usage: python {sys.argv[0]} train|enjoy --env={PREFIX}ID --experiment=NAME [flags]"
        print(usage, file=sys.stderr)
        return 2
    return commands[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
