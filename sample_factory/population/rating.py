"""How strong players are, from the results of matches."""

from typing import NamedTuple

START_ELO = 1000.0
ELO_SCALE = 400.0
ELO_STEP = 8.0  # K: a won match between equals moves both by half of it
WINDOW = 100  # matches that a win rate looks back to


def expected_score(own_elo: float, other_elo: float) -> float:
    """Chance to win, a draw counted as half a win: 1 / (1 + 10^((R_other - R_own) / 400)), Elo 1978."""
    return 1.0 / (1.0 + 10.0 ** ((other_elo - own_elo) / ELO_SCALE))


def elo_gain(own_elo: float, other_elo: float, score: float) -> float:
    """What a result of 1, 0.5 or 0 adds to the own rating, and takes from the other."""
    return ELO_STEP * (score - expected_score(own_elo, other_elo))


class Record(NamedTuple):
    """Results of a live policy against one past self. A live policy changes, so old matches fade: win_rate is
    a mean over the first WINDOW matches and an exponential one from then on. It begins as if one match had
    been drawn.
    """

    matches: int = 0
    win_rate: float = 0.5

    def with_result(self, score: float) -> "Record":
        """After one more match: 1 won, 0.5 drawn, 0 lost."""
        matches = self.matches + 1
        return Record(matches, self.win_rate + (score - self.win_rate) / min(matches + 1, WINDOW))
