"""Envs for evaluations. A module of its own: a child that imports little starts soon."""

import os
import signal

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

LONG = 20


class ShortLosses(gym.Env):
    """Every second episode is lost at its first step; the others are won after LONG steps.

    `steps`: of all episodes, by env.
    """

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(5)
    steps: dict[int, int] = {}

    def __init__(self, env_id=0):
        self._id = env_id
        self._episode = env_id
        self.steps[env_id] = 0

    def reset(self, *, seed=None, options=None):
        self._episode += 1
        self._left = LONG if self._episode % 2 else 1
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps[self._id] += 1
        self._left -= 1
        is_won = self._left == 0 and self._episode % 2 == 1
        level = "long" if self._episode % 2 else "short"
        info = {"episode_extra_stats": {"won": float(is_won)}, "episode_level": level}
        return np.zeros(3, np.float32), float(is_won), self._left == 0, False, info


class DiesOnce(ShortLosses):
    """Its process dies in its third episode, unless a process did before."""

    def __init__(self, env_id, marker):
        super().__init__(env_id)
        self._marker = marker

    def step(self, action):
        if self._episode == self._id + 3 and self._id == 1 and not os.path.exists(self._marker):
            open(self._marker, "w").close()
            os._exit(1)
        return super().step(action)


class CachedStart(CartPoleEnv):
    """Begins all episodes in the state of its first one, as Brax."""

    _first_seed = None

    def reset(self, *, seed=None, options=None):
        if self._first_seed is None:
            self._first_seed = seed
        return super().reset(seed=self._first_seed)


class SameStart(CartPoleEnv):
    """Every episode begins in the same state."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=5)


class Interrupts(ShortLosses):
    """Sends Ctrl+C at the end of its second episode."""

    def reset(self, *, seed=None, options=None):
        if self._episode == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().reset()
