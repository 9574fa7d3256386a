"""Means with standard deviations, and win rates with confidence intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within this many deviations of its mean


class MeanAndStd(NamedTuple):
    """Mean and standard deviation over episodes or matches; nan if there were none."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} +- {self.std:.3f}"


def mean_and_std(values: Sequence[float]) -> MeanAndStd:
    if not values:
        return MeanAndStd(float("nan"), float("nan"))
    return MeanAndStd(float(np.mean(values)), float(np.std(values)))


class WinRate(NamedTuple):
    """The observed rate `value`, and the interval that holds the true rate with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % confidence: {self.low:.3f} to {self.high:.3f})"


def win_rate(wins: int, matches: int) -> WinRate:
    """Returns the win rate p = wins / matches, matches >= 1, with Wilson's score interval.

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927. The interval
    stays within 0 and 1 and is accurate for a few matches too.
    """
    p = wins / matches
    z_squared = NORMAL_QUANTILE**2
    scale = 1 + z_squared / matches
    centre = (p + z_squared / (2 * matches)) / scale
    variance = p * (1 - p) / matches + z_squared / (4 * matches**2)
    half_width = NORMAL_QUANTILE * math.sqrt(variance) / scale
    # Exact at the ends, where rounding could leave 0..1.
    low = centre - half_width if wins else 0.0
    high = centre + half_width if wins < matches else 1.0
    return WinRate(p, low, high)
