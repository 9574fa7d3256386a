"""Results as text: a line for each statistic, a table of levels."""

import math
from collections.abc import Mapping, Sequence

from sample_factory.evaluation.result_statistics import mean_and_std
from sample_factory.monitoring.console import number_text

ALL_LEVELS = "all levels"
# By name of a statistic, its value in each episode.
Values = Mapping[str, Sequence[float]]


def result_lines(values: Values) -> list[str]:
    """Returns a line for each statistic: mean, standard deviation, range, and the interval of the mean."""
    lines = []
    for name, found in values.items():
        mean = mean_and_std(found)
        line = f"{name:<9} {mean} ({number_text(min(found))} to {number_text(max(found))})"
        if math.isfinite(mean.low):
            line += f"  mean {number_text(mean.low)} to {number_text(mean.high)} (95 %)"
        lines.append(line)
    return lines


def level_table(of_levels: Mapping[str, Values]) -> list[str]:
    """Returns the lines of a table with a row for each level and one for all of them: the number of episodes,
    and the mean of each statistic with its 95 % confidence interval.

    of_levels: by name of the level, the same statistics for each. In the last row, all episodes are one
    sample, so its interval is wide where the levels differ much.
    """
    names = list(next(iter(of_levels.values())))
    pooled = {name: [value for values in of_levels.values() for value in values[name]] for name in names}
    rows = [["level", "episodes", *names]]
    for level, values in {**of_levels, ALL_LEVELS: pooled}.items():
        cells = [_mean_text(values[name]) for name in names]
        rows.append([level, str(len(values[names[0]])), *cells])
    return in_columns(rows)


def _mean_text(values: Sequence[float]) -> str:
    mean = mean_and_std(values)
    interval = f" ({number_text(mean.low)} to {number_text(mean.high)})" if math.isfinite(mean.low) else ""
    return f"{number_text(mean.mean)}{interval}"


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row; the columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
