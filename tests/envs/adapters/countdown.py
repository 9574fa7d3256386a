"""A small Gymnasium env, and a function that steps any adapted env."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sample_factory.envs.protocol import ObservationRows
from sample_factory.spaces.actions import action_layout


class Countdown(gym.Env):
    """Ends after `length` steps: odd episodes by termination, even ones by truncation. The reward is 1.

    The observation is (number of the episode, step of the episode). `time` in the info is the step.
    """

    def __init__(self, observation_space=None, action_space=None, length=3):
        self.observation_space = observation_space or spaces.Box(-1, 100, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(3, start=5)
        self.length = length
        self.episode = 0
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.actions.append(action)
        self.time += 1
        ended = self.time == self.length
        terminated = ended and self.episode % 2 == 1
        return self._observe(), 1.0, terminated, ended and not terminated, {"time": self.time}

    def _observe(self):
        return np.array([self.episode, self.time], float)


def drive(env, actions, seed=0):
    """Steps an adapted env. actions: a number for each step: every component of the action of every agent.

    Returns the observations before each step and after the last, [num_agents, ...] by key, and the results of
    the steps.
    """
    rows = ObservationRows.allocate(env.kinds)
    env.reset(seed, rows)

    def observed():
        return {key: array[:, 0].copy() for key, array in rows.arrays.items()}

    size = max(action_layout(kind.action).num_action_values for kind in env.kinds.spaces)
    observations, results = [observed()], []
    for action in actions:
        results.append(env.step(np.full((env.num_agents, size), action, np.float32), rows))
        observations.append(observed())
    return observations, results
