"""A user's script: an env that gives NaN and inf, and a network that computes NaN.

`python broken_numbers.py --env=broken_numbers --encoder_custom=nan_for_good ...`
"""

import os
import sys
import time

import gymnasium as gym
import numpy as np
import torch

from sample_factory import register_encoder, register_env
from sample_factory.train import main

LAST_GOOD_STEP = 20  # of training, before the network computes NaN for good


class Broken(gym.Env):
    """Two numbers; an episode has 20 steps. broken: None, "rewards" or "observations", now and then."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, broken):
        self.broken = broken
        self.num_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        observation = self.np_random.random(2, np.float32)
        reward = float(action)
        if self.num_steps % 50 == 7:
            number = (np.nan, np.inf, -np.inf)[self.num_steps // 50 % 3]
            if self.broken == "rewards":
                reward = number
            elif self.broken == "observations":
                observation[1] = number
        return observation, reward, self.num_steps % 20 == 0, False, {}


class Encoder(torch.nn.Module):
    """A linear layer that computes NaN in the first of 10 training steps, in all after LAST_GOOD_STEP, or in
    acting only. It writes its last good weights to the file WEIGHTS_FILE.
    """

    def __init__(self, when):
        super().__init__()
        self.layer = torch.nn.Linear(2, 16)
        self.out_size = 16
        self.when = when
        self.num_steps = 0

    def forward(self, observations):
        features = self.layer(observations["obs"]).tanh()
        if not torch.is_grad_enabled():
            return features * float("nan") if self.when == "in_acting" else features
        self.num_steps += 1
        if self.when == "for_good" and self.num_steps == LAST_GOOD_STEP:
            time.sleep(1.5)  # until a checkpoint is due, with --save_every_sec=1
        if self.when == "for_good" and self.num_steps == LAST_GOOD_STEP + 1:
            torch.save(self.state_dict(), os.environ["WEIGHTS_FILE"])
        is_now = self.when == "now_and_then" and self.num_steps % 10 == 1
        is_for_good = self.when == "for_good" and self.num_steps > LAST_GOOD_STEP
        return features * float("nan") if is_now or is_for_good else features


def make_env(full_env_name, cfg, env_config, render_mode=None):
    place = env_config and (env_config.worker_index, env_config.vector_index)
    return Broken({(1, 1): "rewards", (0, 2): "observations"}.get(place))


register_env("broken_numbers", make_env)
register_encoder("nan_now_and_then", lambda flags, space: Encoder("now_and_then"))
register_encoder("nan_for_good", lambda flags, space: Encoder("for_good"))
register_encoder("nan_in_acting", lambda flags, space: Encoder("in_acting"))

if __name__ == "__main__":
    sys.exit(main())
