"""PettingZoo envs in which agents end early, join late, and are away for a while."""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NUM_CARDS = 4


class Turn(NamedTuple):
    """Result of a step: the agents that are in the env afterwards, and those that ended."""

    agents: str
    terminated: str = ""
    truncated: str = ""


class Scripted(ParallelEnv):
    """Agents "a", "b" and "c"; each letter of a Turn is one. An episode is a list of turns.

    Agent i observes (i + 1, step of the episode, number of the episode); its reward is its action + 1.
    """

    metadata = {"name": "scripted_v0", "render_modes": ["rgb_array"]}
    possible_agents = ["a", "b", "c"]

    def __init__(self, turns: list[Turn], begin: str = "abc", render_mode: str | None = None):
        self.turns = turns
        self.begin = begin
        self.render_mode = render_mode
        self.seeds = []
        self.actions = []
        self.episode = 0
        self.is_closed = False

    def observation_space(self, agent):
        return spaces.Box(0, 1000, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(5, start=10)

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.time = 0
        self.agents = list(self.begin)
        self.episode += 1
        return self._observe(self.agents), {agent: {"first": True} for agent in self.agents}

    def step(self, actions):
        self.actions.append(actions)
        turn = self.turns[self.time]
        self.time += 1
        reported = sorted({*self.agents, *turn.agents})
        self.agents = list(turn.agents)
        return (
            self._observe(reported),
            {agent: float(action - 9) for agent, action in actions.items()},
            {agent: agent in turn.terminated for agent in reported},
            {agent: agent in turn.truncated for agent in reported},
            {agent: {"time": self.time} for agent in reported},
        )

    def _observe(self, agents):
        return {
            agent: np.array([ord(agent) - ord("a") + 1, self.time, self.episode], np.float32)
            for agent in agents
        }

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def close(self):
        self.is_closed = True


class Cards(ParallelEnv):
    """Three players each name the card they see.

    A player that is wrong has to leave. The third one joins in step 3.
    """

    metadata = {"name": "cards_v0"}
    possible_agents = ["first", "second", "late"]
    max_steps = 12

    def observation_space(self, agent):
        return spaces.Dict(
            {
                "card": spaces.Discrete(NUM_CARDS),
                "action_mask": spaces.Box(0, 1, (NUM_CARDS + 1,), np.uint8),
            }
        )

    def action_space(self, agent):
        return spaces.Discrete(NUM_CARDS + 1)  # the last one is always forbidden

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.time = 0
        self.agents = ["first", "second"]
        return self._deal(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents) and NUM_CARDS not in actions.values()
        self.time += 1
        time_is_up = self.time == self.max_steps
        right = {agent: actions[agent] == self._cards[agent] for agent in actions}
        rewards = {agent: float(right[agent]) for agent in actions}
        terminations = {agent: not right[agent] for agent in actions}
        truncations = dict.fromkeys(actions, time_is_up)
        self.agents = [] if time_is_up else [agent for agent in self.agents if right[agent]]
        if self.time == 3 and self.agents:
            self.agents.append("late")
        return self._deal(), rewards, terminations, truncations, {agent: {} for agent in actions}

    def _deal(self):
        self._cards = {agent: int(self._rng.integers(NUM_CARDS)) for agent in self.agents}
        mask = np.array([1] * NUM_CARDS + [0], np.uint8)
        return {agent: {"card": card, "action_mask": mask} for agent, card in self._cards.items()}


class Alternating(AECEnv):
    """Two players act in turn. A game has three turns, or as many as are given.

    Players observe the number of turns so far. Each turn gives its player 1 and the opponent 10; in the last
    one, the player gets 2 and the opponent 20.
    """

    metadata = {"name": "alternating_v0", "is_parallelizable": False}
    possible_agents = ["a", "b"]

    def __init__(self, num_turns=3):
        self.num_turns = num_turns
        self.actions = []

    def observation_space(self, agent):
        return spaces.Box(0, 100, (4,), np.float32)  # as many numbers as CountingEnv has

    def action_space(self, agent):
        return spaces.Discrete(9)

    def observe(self, agent):
        return np.full(4, self.turn, np.float32)

    def reset(self, seed=None, options=None):
        self.turn = 0
        self.agents = list(self.possible_agents)
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0.0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"

    def step(self, action):
        player = self.agent_selection
        if self.terminations[player]:
            self._was_dead_step(action)
            return
        self.actions.append((player, int(action)))
        self.turn += 1
        is_last = self.turn == self.num_turns
        other = "b" if player == "a" else "a"
        self.rewards = {player: 1.0 + is_last, other: 10.0 * (1 + is_last)}
        self.terminations = dict.fromkeys(self.agents, is_last)
        self.infos = {agent: {"turn": self.turn} for agent in self.agents}
        self.agent_selection = other


def make_cards(render_mode=None):
    """`--env=pettingzoo_tests.envs.parallel_envs:make_cards`."""
    return Cards()


def make_cards_of_any_size(size=2):
    """Has no parameter `render_mode`."""
    cards = Cards()
    cards.size = size
    return cards
