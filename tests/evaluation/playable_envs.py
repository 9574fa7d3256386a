"""Small envs with episodes that are known beforehand."""

import math

import gymnasium as gym
import numpy as np

from sample_factory.envs.abilities import ScriptedPlayers


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

    Agent 1 is inactive in the second step of each of its episodes. `actions`: the actions of each step.
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


class Cards:
    """Each agent puts down a card in each of two rounds; its objective is its last card plus its bonus.

    `cards[i]`: the cards of step i. The env can be drawn: a red picture for each round.
    """

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(5)

    def __init__(self, num_agents=2, bonuses=None, leaves_early=None):
        """leaves_early: an agent whose episode ends after the first round. The second round, in which it is
        inactive, counts as an episode of its own.
        """
        self.is_multiagent = True
        self.num_agents = num_agents
        self._bonuses = bonuses or [0.0] * num_agents
        self._leaves_early = leaves_early
        self.cards = []

    def reset(self, *, seed=None, options=None):
        self._round = 0
        return self._observations(), [{} for _ in range(self.num_agents)]

    def step(self, actions):
        self._round += 1
        self.cards.append([int(action) for action in actions])
        is_over = self._round == 2
        ended = [is_over] * self.num_agents
        infos = [{"true_objective": card + bonus} for card, bonus in zip(self.cards[-1], self._bonuses)]
        if self._leaves_early is not None:
            ended[self._leaves_early] = True
            infos[self._leaves_early].update({"true_objective": -1.0} if is_over else {"is_active": False})
        self._round %= 2
        return self._observations(), [0.0] * self.num_agents, ended, [False] * self.num_agents, infos

    def render(self):
        return np.full((48, 64, 3), (255, 0, 0), np.uint8)

    def close(self):
        pass

    def _observations(self):
        return [np.zeros(3, np.float32)] * self.num_agents


class EarlyDeath:
    """Two agents play matches of five steps; the episode of agent 1 ends after the first step of each."""

    is_multiagent = True
    num_agents = 2
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return [np.zeros(3, np.float32)] * 2, [{}, {}]

    def step(self, actions):
        self._step = self._step % 5 + 1
        is_over = self._step == 5
        infos = [{}, {"is_active": is_over}]
        return [np.zeros(3, np.float32)] * 2, [0.0, 0.0], [is_over, self._step == 1], [False] * 2, infos

    def render(self):
        return None

    def close(self):
        pass


class Guest:
    """Two agents, whose matches have one step; agent 1 takes part in every n-th one only."""

    is_multiagent = True
    num_agents = 2
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(5)

    def __init__(self, n=math.inf):
        self._n = n

    def reset(self, *, seed=None, options=None):
        self._match = 1
        return [np.zeros(3, np.float32)] * 2, self._infos()

    def step(self, actions):
        ended = [True, self._match % self._n == 0]
        self._match += 1
        return [np.zeros(3, np.float32)] * 2, [0.0, 0.0], ended, [False] * 2, self._infos()

    def _infos(self):
        return [{}, {"is_active": self._match % self._n == 0}]

    def render(self):
        return None

    def close(self):
        pass


class CardsWithBots(Cards, ScriptedPlayers):
    """Its players "low" and "high" always put down card 0 and card 4."""

    def scripted_players(self):
        return "low", "high"

    def scripted_action(self, player, agent):
        return {"low": 0, "high": 4}[player]
