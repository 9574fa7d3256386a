"""Results of the matches in one env between live policies and past selves."""

import math

import numpy as np

from sample_factory.exchange.messages import MatchReport
from sample_factory.sampling.matchmaking.matchmaking import Player


class MatchLog:
    """Compares the episodes of the agents of one env. A match is over when every agent that is within an
    episode has ended one since the match began: it does not wait for an agent that takes no part.

    Agents that end together are compared in that step. Where each ends on its own, the last episode of each
    counts.
    """

    def __init__(self, num_agents: int):
        self._ended: dict[int, tuple[Player, float]] = {}  # by agent, in this match
        self._has_ended = np.zeros(num_agents, bool)

    def end(self, agent: int, player: Player, objective: float) -> None:
        """Notes the end of an agent's episode."""
        self._ended[agent] = player, objective
        self._has_ended[agent] = True

    def is_over(self, begun: np.ndarray) -> bool:
        """begun: [num_agents] bool, True for an agent within an episode."""
        return not (begun & ~self._has_ended).any()

    def take_results(self) -> list[MatchReport]:
        """Returns the result of each live policy against each past self, and begins a new match.

        An objective of NaN gives no result.
        """
        ended = list(self._ended.values())
        self.abandon()
        past_selves = [(player.past_self, objective) for player, objective in ended if player.past_self]
        live = [(player.policy_id, objective) for player, objective in ended if player.is_live]
        return [
            MatchReport(policy, past_self, _score(own, other))
            for policy, own in (live if past_selves else ())
            for past_self, other in past_selves
            if not math.isnan(own + other)
        ]

    def abandon(self) -> None:
        """Begins a new match without results of the current one."""
        self._ended = {}
        self._has_ended[:] = False


def _score(own: float, other: float) -> float:
    """1 won, 0.5 drawn, 0 lost."""
    return 0.5 * (1 + (own > other) - (own < other))
