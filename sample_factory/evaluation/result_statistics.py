"""Means and win rates with their confidence intervals, and tables of them as text."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sample_factory.monitoring.console import aligned, number_text

NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within this many deviations of its mean
MIN_EPISODES = 10  # of an interval
# Of Student's t distribution with 1, 2, ... degrees of freedom, for which the series is too inaccurate.
# fmt: off
T_QUANTILES = (
    12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836,
    2.446911851, 2.364624252, 2.306004135, 2.262157163, 2.228138852,
)
# fmt: on


class MeanAndStd(NamedTuple):
    """Mean and standard deviation over episodes or matches; nan if there are none.

    For example `evaluation.reward.mean`, `evaluation.reward.low`.

    Attributes:
        mean: The mean.
        std: The standard deviation.
        low: Lower end of the 95 % confidence interval of the mean, by Student's t distribution, which assumes
            independent values; nan for fewer than MIN_EPISODES values, which say too little.
        high: Upper end of the interval.
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
    std = float(np.std(values))
    if len(values) < MIN_EPISODES:
        return MeanAndStd(mean, std)
    margin = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return MeanAndStd(mean, std, mean - margin, mean + margin)


def t_quantile(degrees: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution: 95 % of it lie between -t and t. The error is
    below 0.0002.
    degrees: degrees of freedom, at least 1. Source of the series: Abramowitz and Stegun, Handbook of
        Mathematical Functions, 1964, 26.7.5."""
    if degrees <= len(T_QUANTILES):
        return T_QUANTILES[degrees - 1]
    x = NORMAL_QUANTILE
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
    )
    return sum(term / float(degrees) ** power for power, term in enumerate(terms))


class WinRate(NamedTuple):
    """An observed win rate, `value`, and its 95 % confidence interval from `low` to `high`."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % confidence: {self.low:.3f} to {self.high:.3f})"


def win_rate(wins: int, matches: int) -> WinRate:
    """Returns the win rate p = wins / matches, matches >= 1, with Wilson's score interval for n = matches:

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


ALL_LEVELS = "all levels"
# By name of a statistic, its value in each episode.
Values = Mapping[str, Sequence[float]]


def result_lines(values: Values) -> list[str]:
    """Returns a line of text for each statistic: mean, standard deviation, range, and the 95 % confidence
    interval of the mean. values: name of a statistic -> its value in each episode."""
    lines = []
    for name, found in values.items():
        mean = mean_and_std(found)
        line = f"{name:<9} {mean} ({number_text(min(found))} to {number_text(max(found))})"
        if math.isfinite(mean.low):
            line += f"  mean {number_text(mean.low)} to {number_text(mean.high)} (95 %)"
        lines.append(line)
    return lines


def level_table(of_levels: Mapping[str, Values]) -> list[str]:
    """Returns the lines of a table with a row for each level and a last row for all levels: the number of
    episodes, and the mean of each statistic with its 95 % confidence interval.
    of_levels: level -> statistic -> values, with the same statistics for each level. In the last row, all
        episodes are one sample, so its interval is wide where the levels differ much."""
    names = list(next(iter(of_levels.values())))
    pooled = {name: [value for values in of_levels.values() for value in values[name]] for name in names}
    rows = [["level", "episodes", *names]]
    for level, values in {**of_levels, ALL_LEVELS: pooled}.items():
        cells = [_mean_text(values[name]) for name in names]
        rows.append([level, str(len(values[names[0]])), *cells])
    return aligned(rows, "<")


def _mean_text(values: Sequence[float]) -> str:
    mean = mean_and_std(values)
    interval = f" ({number_text(mean.low)} to {number_text(mean.high)})" if math.isfinite(mean.low) else ""
    return f"{number_text(mean.mean)}{interval}"


class LevelMatrix(NamedTuple):
    """Holds the mean true objective of several checkpoints in several levels.
    checkpoints: names of the rows. levels: names of the columns.
    means: [checkpoint][level]; nan for a level that was not played.
    is_sequence: whether checkpoint i was saved when the training on level i had ended."""

    checkpoints: list[str]
    levels: list[str]
    means: list[list[float]]
    is_sequence: bool = False

    @property
    def forgetting(self) -> list[float] | None:
        """How much of its mean true objective each level, except the last, has lost since its training ended:
        means[i][i] - means[-1][i] for level i. None unless there is a checkpoint for each level.

        Source: `calculate_forgetting` in results/common.py of the repository of COOM (Tomilin et al., COOM: A
        Game Benchmark for Continual Reinforcement Learning, 2023), which averages the last ten evaluations of
        each training instead of using one.
        """
        if not self.is_sequence or not 1 < len(self.levels) == len(self.means):
            return None
        return [own[i] - last for i, (own, last) in enumerate(zip(self.means[:-1], self.means[-1]))]

    def lines(self) -> list[str]:
        """Returns the table as lines of text; the last column has the mean of each row."""
        rows = dict(zip(self.checkpoints, self.means))
        if self.forgetting is not None:
            rows["forgetting"] = self.forgetting
        texts = [["", *self.levels, "mean"]]
        for name, row in rows.items():
            cells = [number_text(value) for value in row] + [""] * (len(self.levels) - len(row))
            texts.append([name, *cells, number_text(statistics.fmean(row))])
        return ["mean true objective of each checkpoint in each level", *aligned(texts, "<")]

    def figures(self) -> dict[str, Any]:
        """Returns the table for a --json file. May contain NaN, which `write_json` replaces."""
        forgetting = self.forgetting
        mean = None if forgetting is None else statistics.fmean(forgetting)
        return {
            "checkpoints": self.checkpoints,
            "levels": self.levels,
            "means": self.means,
            "forgetting": forgetting,
            "mean_forgetting": mean,
        }
