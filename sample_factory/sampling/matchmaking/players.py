"""Who plays the agents of one split."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.messages import LIVE
from sample_factory.sampling.matchmaking.matchmaker import Matchmaker, Player


class Group(NamedTuple):
    """The agents, [agents] bool, that one player acts for."""

    player: Player
    agents: np.ndarray


class Players:
    """The player of each agent of E envs in its present episode, as the envs' matchmakers say.

    policies: [agents] int16; past_selves: [agents] of str, LIVE where the policy is live; is_live: [agents]
    bool. Only what live policies do is trained on.
    """

    def __init__(self, matchmakers: Sequence[Matchmaker], agents_per_env: int):
        self._matchmakers, self._agents_per_env = matchmakers, agents_per_env
        num_agents = len(matchmakers) * agents_per_env
        self.policies = np.zeros(num_agents, np.int16)
        self.past_selves = np.full(num_agents, LIVE, object)
        self._assign(range(num_agents))

    def of(self, agent: int) -> Player:
        return Player(int(self.policies[agent]), self.past_selves[agent])

    def next_episodes(self, ended: Sequence[int], over: Sequence[int], begun: np.ndarray) -> list[int]:
        """ended: agents whose episodes have, in one step; over: envs whose matches are with it; begun:
        [agents] bool, who is in an episode now. Returns the agents that have got the players of their next
        ones: in a new match also those that ended earlier. Nobody's changes inside an episode.
        """
        for env in over:
            self._matchmakers[env].match_ended()
        waiting = [
            agent for agent in np.flatnonzero(~begun).tolist() if agent // self._agents_per_env in over
        ]
        starting = sorted({*ended, *waiting})
        self._assign(starting)
        return starting

    def groups(self, active: np.ndarray) -> Iterator[Group]:
        """Of the active agents, [agents] bool."""
        for policy in sorted(set(self.policies[active].tolist())):
            its = (self.policies == policy) & active
            if self._all_live:
                yield Group(Player(policy), its)
                continue
            for past_self in sorted(set(self.past_selves[its])):
                yield Group(Player(policy, past_self), its & (self.past_selves == past_self))

    def _assign(self, agents: Sequence[int]) -> None:
        for agent in agents:
            env, agent_of_env = divmod(agent, self._agents_per_env)
            self.policies[agent], self.past_selves[agent] = self._matchmakers[env].player_of(agent_of_env)
        self.is_live = self.past_selves == LIVE
        self._all_live = bool(self.is_live.all())
