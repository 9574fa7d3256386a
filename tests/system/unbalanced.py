"""A user's script in which sampling or learning is far slower than the other, or a network raises.

`python unbalanced.py --env=unbalanced ...`: a step takes SLOW_ENV_SECONDS, a minibatch SLOW_LEARNER_SECONDS.
"""

import os
import sys
import time

import gymnasium as gym
import numpy as np
import torch

from sample_factory import register_encoder, register_env
from sample_factory.train import main

MAX_CALLS = 200  # more than the trial of a network makes


class Unbalanced(gym.Env):
    """Two numbers; an episode has 20 steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.seconds = float(os.environ.get("SLOW_ENV_SECONDS", "0"))
        self.num_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        time.sleep(self.seconds)
        return self.np_random.random(2, np.float32), float(action), self.num_steps % 20 == 0, False, {}


class SlowInTraining(torch.nn.Module):
    """A linear layer."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.layer = torch.nn.Linear(2, 16)
        self.out_size = 16
        self.seconds = float(os.environ.get("SLOW_LEARNER_SECONDS", "0"))

    def forward(self, observations):
        if torch.is_grad_enabled():
            time.sleep(self.seconds)
        return self.layer(observations["obs"]).tanh()


class RaisesInActing(SlowInTraining):
    num_calls = 0

    def forward(self, observations):
        self.num_calls += 1
        if self.num_calls > MAX_CALLS and not torch.is_grad_enabled():
            raise ValueError("a broken layer")
        return super().forward(observations)


register_env("unbalanced", lambda full_env_name: Unbalanced())
register_encoder("slow_in_training", SlowInTraining)
register_encoder("raises_in_acting", RaisesInActing)

if __name__ == "__main__":
    sys.exit(main())
