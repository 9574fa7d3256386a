"""How sure a win rate is after so many matches."""

import math
from typing import NamedTuple

NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within so many deviations of its mean


class WinRate(NamedTuple):
    """`value`, and the interval that holds the true rate with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % confidence: {self.low:.3f} to {self.high:.3f})"


def win_rate(wins: int, matches: int) -> WinRate:
    """wins of matches >= 1, with the score interval of Wilson (Probable Inference, the Law of Succession,
    and Statistical Inference, 1927), which stays within 0 and 1 and is right for a few matches too:

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)
    """
    p, z_squared = wins / matches, NORMAL_QUANTILE**2
    scale = 1 + z_squared / matches
    centre = (p + z_squared / (2 * matches)) / scale
    variance = p * (1 - p) / matches + z_squared / (4 * matches**2)
    half_width = NORMAL_QUANTILE * math.sqrt(variance) / scale
    # Rounding must not lead out of what a rate can be.
    low = centre - half_width if wins else 0.0
    high = centre + half_width if wins < matches else 1.0
    return WinRate(p, low, high)
