"""Elo ratings and win rates of policies and past selves, from the results of matches."""

from typing import NamedTuple

START_ELO = 1000.0
ELO_SCALE = 400.0
ELO_STEP = 8.0  # the K factor: a won match between equals moves both ratings by half of it
WINDOW = 100  # matches over which a win rate is averaged


def expected_score(own_elo: float, other_elo: float) -> float:
    """Returns the expected score, 1 / (1 + 10^((R_other - R_own) / 400)); a draw counts 0.5 (Elo 1978)."""
    odds: float = 10.0 ** ((other_elo - own_elo) / ELO_SCALE)
    return 1.0 / (1.0 + odds)


def elo_gain(own_elo: float, other_elo: float, score: float) -> float:
    """Returns how much a score of 1, 0.5 or 0 adds to the own rating, and subtracts from the other."""
    return ELO_STEP * (score - expected_score(own_elo, other_elo))


class Record(NamedTuple):
    """Results of a live policy against one past self.

    win_rate: the mean score over the first WINDOW matches, then an exponential moving average, because the
    live policy changes. It starts as if one match had been drawn.
    """

    matches: int = 0
    win_rate: float = 0.5

    def with_result(self, score: float) -> "Record":
        """Returns the record after one more match with a score of 1 (won), 0.5 (drawn) or 0 (lost)."""
        matches = self.matches + 1
        return Record(matches, self.win_rate + (score - self.win_rate) / min(matches + 1, WINDOW))
