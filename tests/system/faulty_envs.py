"""A user's script: envs that go wrong in the way that their name says, e.g. `--env=faulty_hangs`.

The fault comes in a given step of the life of env 1 of worker 1. Once only, which a file remembers, where the
name ends in `_once`.
"""

import os
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.train import main

STEP = 200
FORGOTTEN = []


class Faulty(gym.Env):
    """Two numbers; an episode has 20 steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind, is_culprit):
        self.kind, self.is_culprit, self.num_steps = kind, is_culprit, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.kind == "raises_in_reset" and self.num_steps >= STEP and self.is_culprit:
            raise LookupError("level 7 is missing")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        observation, reward = np.zeros(2, np.float32), 1.0
        if self.is_culprit and self.num_steps >= STEP and not self._is_over():
            observation, reward = self._go_wrong(observation, reward)
        return observation, reward, self.num_steps % 20 == 0, False, {}

    def _is_over(self):
        if not self.kind.endswith("_once"):
            return False
        try:
            Path(os.environ["FAULT_FILE"]).touch(exist_ok=False)
            return False
        except FileExistsError:
            return True

    def _go_wrong(self, observation, reward):
        match self.kind.removesuffix("_once"):
            case "raises":
                raise LookupError("level 7 is missing")
            case "hangs":
                self.wait_for_ever()
            case "exits":
                os._exit(3)
            case "wrong_shape":
                return np.zeros(3, np.float32), reward
            case "wrong_dtype":
                return np.array(["a", "b"]), reward
            case "leaks":
                FORGOTTEN.append(np.ones(2**20))  # 8 MB
        return observation, reward

    def wait_for_ever(self):
        time.sleep(100_000)


def make_env(full_env_name, cfg, env_config, render_mode=None):
    is_culprit = env_config is not None and (env_config.worker_index, env_config.vector_index) == (1, 1)
    return Faulty(full_env_name.removeprefix("faulty_"), is_culprit)


register_env("faulty_", make_env)

if __name__ == "__main__":
    sys.exit(main())
