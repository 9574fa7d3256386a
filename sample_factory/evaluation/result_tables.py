"""Results as text: a line for each statistic, a table of levels, a table of checkpoints by levels."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sample_factory.evaluation.result_statistics import mean_and_std
from sample_factory.monitoring.console import aligned, number_text

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
