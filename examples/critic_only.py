"""Trains with an observation that only the critic gets: it tells luck from skill.

    python examples/critic_only.py train --experiment=with --critic_only_keys=weather
    python examples/critic_only.py train --experiment=without --weather_report=False
    python examples/critic_only.py enjoy --experiment=with --weather_report=False

On each day the farmer has to choose the right tool for a field. The weather of the season, which the farmer
does not know, decides most of the harvest. A critic that knows the weather does not praise a farmer for it.
After training nobody needs it: the last command plays an env that does not report the weather.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_farm"
NUM_TOOLS = 8  # the right one for field i is tool i
NUM_DAYS = 16
WEATHER = 2.0  # standard deviation of what it adds to each day's harvest


@dataclass(frozen=True)
class FarmFlags:
    """Flags of the farm."""

    weather_report: bool = flag(True, "the observations have the weather; for training only")


class Farm(gym.Env):
    """A season of 16 days.

    Observations: `field`, float32 [9]: today's field as a one-hot vector, and the share of the season that
    has passed. `weather`, float32 [1]: constant in a season, normally distributed with mean 0.
    Action: one of 8 tools. Reward: 1 for the right tool, plus twice the weather.
    """

    def __init__(self, has_report: bool):
        parts = {"field": gym.spaces.Box(0, 1, (NUM_TOOLS + 1,), np.float32)}
        if has_report:
            parts["weather"] = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = gym.spaces.Dict(parts)
        self.action_space = gym.spaces.Discrete(NUM_TOOLS)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._day = 0
        self._num_right = 0
        self._weather = self.np_random.normal()
        return self._observe(), {}

    def step(self, action: int):
        is_right = action == self._field
        self._num_right += is_right
        self._day += 1
        is_over = self._day == NUM_DAYS
        # Averaged over episodes and written to TensorBoard as 0_aux/avg_skill.
        info = {"episode_extra_stats": {"skill": self._num_right / NUM_DAYS}} if is_over else {}
        return self._observe(), is_right + WEATHER * self._weather, is_over, False, info

    def _observe(self) -> dict[str, np.ndarray]:
        self._field = self.np_random.integers(NUM_TOOLS)
        field = np.append(np.arange(NUM_TOOLS) == self._field, self._day / NUM_DAYS).astype(np.float32)
        whole = {"field": field, "weather": np.array([self._weather], np.float32)}
        return {key: whole[key] for key in self.observation_space.spaces}


def make_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    return Farm(cfg.weather_report)


DEFAULTS = {"gamma": 1.0, "ppo_epochs": 4, "train_for_env_steps": 60_000}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env("my_farm", make_env, FarmFlags, DEFAULTS)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
