"""A user's script: `--env=statistics` reports whatever it likes at the end of its episodes, and its metrics
raise after some of them.

With the variable RAISES_AT, the main loop raises after so many env frames.
"""

import os
import sys

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.monitoring.monitor import Monitor
from sample_factory.train import main

NUM_STATS = 2_000  # four times as many as are reported


class Talkative(gym.Env):
    """Two numbers; an episode has 20 steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        is_over = self.num_steps == 20
        info = {"episode_extra_stats": self._statistics()} if is_over else {}
        return np.zeros(2, np.float32), 1.0, is_over, False, info

    def _statistics(self):
        numbers = {f"a statistic with a long name {i}": float(i) for i in range(NUM_STATS)}
        return {"map": "corridor", "team": {"kills": np.float32(3)}, "x" * 1_000_000: 1.0, **numbers}


class Metrics:
    def __init__(self, env_name):
        self.num_episodes = 0

    def add(self, extra_stats):
        self.num_episodes += 1
        if self.num_episodes > 20:
            raise LookupError("no level 21")
        return {"own/episodes": self.num_episodes}

    def clear(self):
        self.num_episodes = 0


def tick(monitor):
    if monitor.progress.new_frames > int(os.environ["RAISES_AT"]):
        raise LookupError("no such curve")


register_env("statistics", lambda full_env_name: Talkative(), metrics=Metrics)

if __name__ == "__main__":
    if "RAISES_AT" in os.environ:
        Monitor.tick = tick
    sys.exit(main())
