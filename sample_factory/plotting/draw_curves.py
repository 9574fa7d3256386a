"""Draws learning curves: a panel per env and tag, a line per group of runs."""

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sample_factory.plotting.figure_style import (
    GREY,
    MAX_COLUMNS,
    WIDTHS,
    add_note,
    colour,
    dashes,
    house_style,
    new_figure,
    set_x_axis,
    set_y_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_HEIGHT = 3.1  # inches
NOTE_HEIGHT = 0.25
MAX_TITLE = 46  # characters above one of several panels
LABEL_WIDTH = 36  # characters
MAX_LEGEND_INSIDE = 4  # lines of text; a longer legend would hide the curves and is drawn beneath them
LEGEND_LINE_HEIGHT = 0.16


class Unit(NamedTuple):
    """Unit of the x axis."""

    name: str
    size: float  # in frames or seconds


# (longest curve in seconds, unit)
TIME_UNITS = (
    (600, Unit("seconds of training", 1)),
    (3 * 3600, Unit("minutes of training", 60)),
    (math.inf, Unit("hours of training", 3600)),
)


class Line(NamedTuple):
    """The mean of a group of experiments of one env; four arrays [points] of float64."""

    env: str
    tag: str
    label: str  # distinguishes it from the other lines of its panel; empty if there is none
    experiments: tuple[str, ...]  # their names
    x: np.ndarray  # env frames, or seconds
    mean: np.ndarray
    low: np.ndarray  # edges of the band
    high: np.ndarray

    @property
    def num_runs(self) -> int:
        return len(self.experiments)


class Look(NamedTuple):
    """Texts, axes and levels of a figure."""

    title: str | None
    against: str  # "frames" or "seconds"
    y_labels: Mapping[str, str]  # tag -> text
    levels: Sequence[tuple[str, float]]  # (env, value), of the first tag
    note: str  # beneath the panels: what lines and bands mean; may be empty


def draw(lines: Sequence[Line], look: Look) -> "Figure":
    """Draws a panel per env and tag, at most three in a row. Raises ConfigError if matplotlib is missing."""
    panels: dict[tuple[str, str], list[Line]] = {}
    envs = dict.fromkeys(line.env for line in lines)
    for env in envs:  # the tags of an env side by side
        for line in lines:
            if line.env == env:
                panels.setdefault((env, line.tag), []).append(line)
    num_tags = len(look.y_labels)
    num_columns = num_tags if 1 < num_tags <= MAX_COLUMNS else min(MAX_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    numbers = _number_lines(panels.values())
    unit = _unit(lines, look.against)
    first_tag = next(iter(look.y_labels))
    with house_style():
        figure = new_figure(_size(list(panels.values()), num_columns, bool(look.note)))
        for i, ((env, tag), members) in enumerate(panels.items()):
            axes = figure.add_subplot(num_rows, num_columns, i + 1)
            _draw_panel(axes, members, numbers, unit.size)
            _draw_levels(axes, [level for name, level in look.levels if name == env and tag == first_tag])
            axes.set(title=_title(members), xlabel=unit.name)
            set_x_axis(axes)
            set_y_axis(axes, look.y_labels[tag])
        if look.note:
            add_note(figure, look.note)
        if look.title:
            figure.suptitle(look.title)
    return figure


def _number_lines(panels: Iterable[Sequence[Line]]) -> dict[str, int]:
    """Label -> number, which decides on colour and dashes.

    The numbers within a panel differ, and the same label has the same number in all panels.
    """
    numbers: dict[str, int] = {}
    for lines in panels:
        taken = {numbers[line.label] for line in lines if line.label in numbers}
        free = (number for number in itertools.count() if number not in taken)
        for line in lines:
            if line.label not in numbers:
                numbers[line.label] = next(free)
    return numbers


def _size(panels: Sequence[Sequence[Line]], num_columns: int, has_note: bool) -> tuple[float, float]:
    """Returns width and height in inches."""
    height = 0.0
    for first in range(0, len(panels), num_columns):
        longest = max(_legend_height(panel) for panel in panels[first : first + num_columns])
        height += PANEL_HEIGHT + (longest if longest > MAX_LEGEND_INSIDE else 0) * LEGEND_LINE_HEIGHT
    return WIDTHS[num_columns - 1], height + (NOTE_HEIGHT if has_note else 0)


def _title(lines: Sequence[Line]) -> str:
    """Returns the env of a panel, with the name of its experiment if there is only one and it has room."""
    names = [name for line in lines for name in line.experiments]
    title = f"{lines[0].env} ({names[0]})"
    return title if len(names) == 1 and len(title) <= MAX_TITLE else lines[0].env


def _legend_height(lines: Sequence[Line]) -> int:
    """Returns the height in lines of text."""
    return sum(_label(line).count("\n") + 1 for line in lines)


def _label(line: Line) -> str:
    runs = "1 run" if line.num_runs == 1 else f"{line.num_runs} runs"
    return textwrap.fill(f"{line.label} ({runs})", LABEL_WIDTH) if line.label else runs


def _unit(lines: Sequence[Line], against: str) -> Unit:
    """Returns the unit of the x axes of all panels."""
    if against == "frames":
        return Unit("env frames", 1)
    last = max(line.x[-1] for line in lines)
    return next(unit for limit, unit in TIME_UNITS if last <= limit)


def _draw_panel(axes: "Axes", lines: Sequence[Line], numbers: Mapping[str, int], unit_size: float) -> None:
    for line in lines:
        number = numbers[line.label]
        x = line.x / unit_size
        marker = "o" if len(x) == 1 else ""  # a line of one point is invisible without a marker
        axes.plot(
            x, line.mean, marker=marker, label=_label(line), color=colour(number), linestyle=dashes(number)
        )
        if line.num_runs > 1:
            axes.fill_between(x, line.low, line.high, color=colour(number), alpha=0.18, linewidth=0)
    if _legend_height(lines) <= MAX_LEGEND_INSIDE:
        axes.legend(loc="best")
    else:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)


def _draw_levels(axes: "Axes", levels: Sequence[float]) -> None:
    """Draws dashed lines, each with its number at the left end, where curves have not risen that far yet."""
    for level in levels:
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.0)
        axes.annotate(
            f"{level:g}",
            xy=(0, level),
            xycoords=("axes fraction", "data"),
            xytext=(3, 2),
            textcoords="offset points",
            color=GREY,
            size=8.5,
        )
