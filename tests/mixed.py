"""An env like `tests.counting.CountingEnv` whose agents have different spaces."""

import gymnasium as gym
import numpy as np

NUM_ACTIONS = 1000
ENV, EPISODE, STEP, LAST_ACTION = range(4)  # columns of "where", and of a walker's observation
WATCHER, WALKER = 0, 1  # kinds

IMAGE = gym.spaces.Dict(
    {
        "picture": gym.spaces.Box(0, 255, (5, 4, 3), np.uint8),
        "where": gym.spaces.Box(-1, 1e9, (4,), np.float32),
    }
)
VECTOR = gym.spaces.Box(-1, 1e9, (7,), np.float32)


class MixedCounting:
    """Three agents of two kinds. Episode e of agent a lasts 3 + (e + a + env id) % 5 steps.

    Agents 0 and 2 are watchers, which observe `picture` and `where` and act with a Discrete. Agent 1 is a
    walker, which observes a vector and acts with two numbers.
    """

    num_agents = 3
    kind_of_agent = (WATCHER, WALKER, WATCHER)
    observation_spaces = [IMAGE, VECTOR, IMAGE]
    action_spaces = [
        gym.spaces.Discrete(NUM_ACTIONS),
        gym.spaces.Box(-1e6, 1e6, (2,), np.float32),
        gym.spaces.Discrete(NUM_ACTIONS),
    ]

    def __init__(self, env_id: int = 0):
        self.env_id = env_id

    def reset(self, seed=None, options=None):
        self.episode = np.zeros(self.num_agents, np.int64)
        self.step_of_episode = np.zeros(self.num_agents, np.int64)
        return [self._observe(agent, -1) for agent in range(self.num_agents)], [{}] * self.num_agents

    def step(self, actions):
        assert all(space.contains(action) for space, action in zip(self.action_spaces, actions))
        self.step_of_episode += 1
        rewards = self.step_of_episode.astype(float).tolist()
        ended = self.step_of_episode == 3 + (self.episode + np.arange(self.num_agents) + self.env_id) % 5
        self.episode += ended
        self.step_of_episode[ended] = 0
        observations = [
            self._observe(agent, float(np.sum(actions[agent]))) for agent in range(self.num_agents)
        ]
        return observations, rewards, ended.tolist(), [False] * self.num_agents, [{}] * self.num_agents

    def _observe(self, agent, action):
        where = np.array([self.env_id, self.episode[agent], self.step_of_episode[agent], action], np.float32)
        if self.kind_of_agent[agent] == WALKER:
            return np.concatenate([where, np.full(3, -1, np.float32)])
        return {"picture": np.full((5, 4, 3), self.step_of_episode[agent], np.uint8), "where": where}

    def render(self):
        return None

    def close(self):
        """There is nothing to free."""
