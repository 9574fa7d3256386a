"""A game to be learned by self-play, as a script: takes the flags of train."""

import sys
import time

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.train import main

ENV = "higher_number"
EPISODE_STEPS = 8
# Of the script. New past selves are announced every two seconds: runs must last longer on any machine.
STEP_SECONDS = 0.002


class HigherNumber:
    """Two agents; the one with the higher number gets a point. `num_steps` counts the steps of all agents."""

    num_agents = 2
    is_multiagent = True
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    num_steps = 0

    def reset(self, *, seed=None, options=None):
        self.step_of_episode = 0
        return [np.zeros(2, np.float32)] * 2, [{}, {}]

    def step(self, actions):
        HigherNumber.num_steps += 2
        self.step_of_episode = (self.step_of_episode + 1) % EPISODE_STEPS
        ended = self.step_of_episode == 0
        score = float(np.sign(actions[0] - actions[1]))
        return [np.zeros(2, np.float32)] * 2, [score, -score], [ended] * 2, [False] * 2, [{}, {}]

    def close(self):
        """There is nothing to release."""


class SlowHigherNumber(HigherNumber):
    """Steps that take time, as those of a simulator."""

    def step(self, actions):
        time.sleep(STEP_SECONDS)
        return super().step(actions)


def register(make_game=HigherNumber):
    register_env("higher_", lambda *args, **kwargs: make_game())


if __name__ == "__main__":
    register(SlowHigherNumber)
    sys.exit(main([f"--env={ENV}", *sys.argv[1:]]))
