"""Envs whose agents have different spaces; each agent has something to learn. Made by `register_env`, or with
`--env=pettingzoo_tests.system.hunters:make_parallel`."""

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

SIDE = 6
NUM_PLACES = 4
EPISODE_STEPS = 8
SPOTTER = gym.spaces.Dict({"picture": gym.spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)})
DRIVER = gym.spaces.Box(-1, 1, (2,), np.float32)
CHOICE = gym.spaces.Discrete(NUM_PLACES)
STEERING = gym.spaces.Box(-1, 1, (2,), np.float32)


class Hunters:
    """Two spotters choose the bright corner of their picture; a driver steers to the target that it sees."""

    num_agents = 3
    observation_spaces = [SPOTTER, DRIVER, SPOTTER]
    action_spaces = [CHOICE, STEERING, CHOICE]

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._step = 0
        return self._observe(), [{}, {}, {}]

    def step(self, actions):
        assert all(space.contains(action) for space, action in zip(self.action_spaces, actions))
        rewards = [
            float(actions[0] == self._bright[0]),
            1.0 - float(np.abs(actions[1] - self._target).mean()),
            float(actions[2] == self._bright[1]),
        ]
        self._step += 1
        ended = self._step == EPISODE_STEPS
        if ended:
            self.reset()
        return self._observe(), rewards, [ended] * 3, [False] * 3, [{}, {}, {}]

    def _observe(self):
        self._bright = self._rng.integers(NUM_PLACES, size=2)
        self._target = self._rng.uniform(-0.8, 0.8, 2).astype(np.float32)
        first, second = (self._picture(place) for place in self._bright)
        return [{"picture": first}, self._target, {"picture": second}]

    def _picture(self, place):
        picture = np.zeros((1, SIDE, SIDE), np.uint8)
        half = SIDE // 2
        row, column = divmod(int(place), 2)
        picture[0, row * half : (row + 1) * half, column * half : (column + 1) * half] = 255
        return picture

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def close(self):
        """There is nothing to release."""


class ParallelHunters(ParallelEnv):
    """The same for PettingZoo. The second spotter leaves in the middle of an episode."""

    metadata = {"name": "hunters_v0", "render_modes": []}
    possible_agents = ["spotter_0", "driver", "spotter_1"]

    def __init__(self):
        self._hunters = Hunters()

    def observation_space(self, agent):
        return Hunters.observation_spaces[self.possible_agents.index(agent)]

    def action_space(self, agent):
        return Hunters.action_spaces[self.possible_agents.index(agent)]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self._step = 0
        observations, _ = self._hunters.reset(seed=seed)
        return self._by_agent(observations), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert list(actions) == self.agents
        chosen = [actions.get(agent, 0) for agent in self.possible_agents]
        observations, rewards, ended, _, _ = self._hunters.step(chosen)
        self._step += 1
        results = [self._by_agent(part) for part in (observations, rewards, ended)]
        if self._step == EPISODE_STEPS // 2:
            results[2]["spotter_1"] = True
        self.agents = [agent for agent in self.agents if not results[2][agent]]
        return *results, dict.fromkeys(actions, False), {agent: {} for agent in actions}

    def _by_agent(self, values):
        named = dict(zip(self.possible_agents, values))
        return {agent: named[agent] for agent in self.agents}

    def render(self):
        return None


def make_parallel():
    return ParallelHunters()
