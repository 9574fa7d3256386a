"""Who has won against whom in one env."""

import math
from collections.abc import Sequence

from sample_factory.exchange.messages import LIVE, MatchReport
from sample_factory.sampling.matchmaking.matchmaker import Player


class MatchLog:
    """Compares the episodes of the agents of one env. A match is over when everybody who is in an episode has
    ended one since it began, so that it does not wait for an agent that takes no part.

    Agents that end together are compared in that step. Where each ends on its own, the last episode of each
    counts.
    """

    def __init__(self):
        self._ended: dict[int, tuple[Player, float]] = {}  # by agent, in this match

    def end(self, agent: int, player: Player, objective: float) -> None:
        """An agent's episode is over."""
        self._ended[agent] = player, objective

    def is_over(self, begun: Sequence[int]) -> bool:
        """begun: the agents that are in an episode now."""
        return self._ended.keys() >= set(begun)

    def take_results(self) -> list[MatchReport]:
        """Of each live policy against each past self; a new match begins.

        An objective that is no number says nothing, and gives no result.
        """
        ended, self._ended = list(self._ended.values()), {}
        past = [entry for entry in ended if entry[0].past_self != LIVE]
        return [
            MatchReport(live.policy_id, other.past_self, _score(own, others))
            for live, own in (ended if past else ())
            if live.past_self == LIVE
            for other, others in past
            if not math.isnan(own + others)
        ]

    def abandon(self) -> None:
        """What has ended so far has no result."""
        self._ended = {}


def _score(own: float, other: float) -> float:
    """1 won, 0.5 drawn, 0 lost."""
    return 0.5 * (1 + (own > other) - (own < other))
