"""Small envs whose episodes are known beforehand."""

import gymnasium as gym
import numpy as np


class Undrawable(gym.Env):
    """An env that cannot be drawn; each episode has the rewards 1, 2, 3."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._step += 1
        return np.zeros(3, np.float32), float(self._step), self._step == 3, False, {}


class UnevenAgents:
    """Two agents: the episodes of agent 0 have 2 steps, those of agent 1 have 3; each step is worth 1.

    Agent 1 is inactive in the second step of each of its episodes. `actions` remembers what came.
    """

    num_agents = 2
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        self._steps = [0, 0]
        self.actions = []
        return [np.zeros(3, np.float32)] * 2, [{}, {}]

    def step(self, actions):
        self.actions.append([int(action) for action in actions])
        self._steps = [step + 1 for step in self._steps]
        ended = [self._steps[0] == 2, self._steps[1] == 3]
        infos = [{}, {"is_active": self._steps[1] != 1}]
        for agent in (0, 1):
            if ended[agent]:
                self._steps[agent] = 0
                infos[agent]["true_objective"] = 10.0 + agent
        return [np.zeros(3, np.float32)] * 2, [1.0, 1.0], ended, [False, False], infos

    def render(self):
        return None

    def close(self):
        pass
