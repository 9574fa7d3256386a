"""A user's script: the return of an episode is a number of the reward shaping, so that the policy with the
larger number is the better one. `python population_of_two.py --env=bonus ...`
"""

import sys
import time

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.envs.abilities import RewardShaping
from sample_factory.train import main

STEP_SECONDS = 0.002
EPISODE_STEPS = 8


class Bonus(gym.Env, RewardShaping):
    """Two random numbers; an episode has 8 steps, whose rewards sum up to the bonus."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.bonus = 1.0
        self.num_steps = 0

    def get_default_reward_shaping(self):
        return {"bonus": 1.0}

    def set_reward_shaping(self, shaping, agent):
        self.bonus = shaping["bonus"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(STEP_SECONDS)
        self.num_steps += 1
        observation = self.np_random.random(2, np.float32)
        return observation, self.bonus / EPISODE_STEPS, self.num_steps % EPISODE_STEPS == 0, False, {}


register_env("bonus", lambda full_env_name: Bonus())

if __name__ == "__main__":
    sys.exit(main())
