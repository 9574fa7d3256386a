"""Means and win rates with their confidence intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.monitoring.console import number_text

NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within this many deviations of its mean
CONFIDENCE = 0.95
MAX_DEGREES = 1000  # of freedom, beyond which Student's t distribution is the normal one to three digits


class MeanAndStd(NamedTuple):
    """Mean and standard deviation over episodes or matches; nan without any.

    low, high: 95 % confidence interval of the mean, by Student's t distribution, which assumes independent
        values; nan for fewer than two values.
    """

    mean: float
    std: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        return f"{number_text(self.mean)} +- {number_text(self.std)}"


def mean_and_std(values: Sequence[float]) -> MeanAndStd:
    if not values:
        return MeanAndStd(math.nan, math.nan)
    mean = float(np.mean(values))
    if len(values) == 1:
        return MeanAndStd(mean, 0.0)
    margin = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return MeanAndStd(mean, float(np.std(values)), mean - margin, mean + margin)


def t_quantile(degrees: int) -> float:
    """Returns t so that a value of Student's t distribution lies within -t and t with probability CONFIDENCE.

    degrees: degrees of freedom, at least 1.
    """
    if degrees > MAX_DEGREES:
        return NORMAL_QUANTILE
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_probability(middle, degrees) < CONFIDENCE else (low, middle)
    return high


def _t_probability(t: float, degrees: int) -> float:
    """Returns the probability that a value lies within -t and t.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    is_odd = degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    series = 0.0
    for i in range(2 + is_odd, degrees + 1, 2):
        series += term
        term *= (i - 1) / i * math.cos(angle) ** 2
    if is_odd:
        return 2 / math.pi * (angle + math.sin(angle) * series)
    return math.sin(angle) * series


class WinRate(NamedTuple):
    """The observed rate `value`, and its 95 % confidence interval."""

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
