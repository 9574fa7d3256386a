"""A vector env like `tests.counting.CountingEnv`, without Python code per agent and without torch."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

NUM_ACTIONS = 1000
AGENT, EPISODE, STEP, LAST_ACTION = range(4)  # columns of the observation
SHORTEST_EPISODE = 40
AGENTS_PER_ENV = 40


class CountingCrowd(gym.vector.VectorEnv):
    """Agents that count their steps. AGENT in the observation is the agent's number, unique in the run.

    Episode e of agent a lasts SHORTEST_EPISODE + (e + a) % 5 steps; every second one is truncated. The reward
    is the step.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = gym.spaces.Box(-1, 1e9, (4,), np.float32)
    single_action_space = gym.spaces.Discrete(NUM_ACTIONS)

    def __init__(self, env_id: int):
        self.num_envs = AGENTS_PER_ENV
        self._agents = env_id * AGENTS_PER_ENV + np.arange(AGENTS_PER_ENV)

    def reset(self, *, seed=None, options=None):
        self._episodes = np.zeros(self.num_envs, np.int64)
        self._steps = np.zeros(self.num_envs, np.int64)
        return self._observe(np.full(self.num_envs, -1)), {}

    def step(self, actions):
        self._steps += 1
        rewards = self._steps.astype(np.float64)
        ended = self._steps == SHORTEST_EPISODE + (self._episodes + self._agents) % 5
        truncated = ended & (self._episodes % 2 == 1)
        self._episodes += ended
        self._steps[ended] = 0
        return self._observe(actions), rewards, ended & ~truncated, truncated, {}

    def _observe(self, actions: np.ndarray) -> np.ndarray:
        return np.stack([self._agents, self._episodes, self._steps, actions], axis=1).astype(np.float32)

    def close(self, **kwargs):
        """There is nothing to free."""


def make_crowd(full_env_name, cfg, env_config):
    """Makes the env; the signature is that of `register_env`."""
    return CountingCrowd(env_config.env_id)
