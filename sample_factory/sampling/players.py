"""Who plays the agents of one split."""

from typing import Iterator, NamedTuple, Sequence

import numpy as np

from sample_factory.exchange.messages import LIVE
from sample_factory.sampling.matchmaker import Matchmaker, Player


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

    def episodes_ended(self, agents: Sequence[int]) -> None:
        """All whose episodes have ended in one step: they get the players of their next ones."""
        envs = [agent // self._agents_per_env for agent in agents]
        for env in sorted(set(envs)):
            self._matchmakers[env].episodes_ended(envs.count(env))
        self._assign(agents)

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
