"""Draws learning curves: a panel per env, a line per set of flags."""

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sample_factory.config.config import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 3
WIDTHS = (5.6, 8.4, 10.8)  # inches of a figure with so many columns
PANEL_HEIGHT = 3.1
DOTS_PER_INCH = 150  # a README shows it at half the size on ordinary screens, in full on sharp ones
LABEL_WIDTH = 36  # characters
# By default it depends on the size that the layout, which makes room for the texts, has yet to choose.
NUM_TICKS = 6
MAX_LEGEND_INSIDE = 4  # lines of text; a longer legend would hide the curves and stands beneath them
LEGEND_LINE_HEIGHT = 0.16
# Told apart also by most who are colour-blind (Okabe and Ito, without their black and yellow).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", ":", "-.")  # for lines that are more than the colours; "--" is a level
GREY = "#606060"
STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.7,
}


class Unit(NamedTuple):
    """Of the x axis."""

    name: str
    size: float  # in frames or seconds


# For curves of up to so many seconds.
TIME_UNITS = (
    (600, Unit("seconds of training", 1)),
    (3 * 3600, Unit("minutes of training", 60)),
    (math.inf, Unit("hours of training", 3600)),
)


class Line(NamedTuple):
    """The experiments of one env that differ in nothing but their seed; four arrays [points] of float64."""

    env: str
    flags: str  # that tell it from the other lines of its panel
    num_seeds: int
    x: np.ndarray  # env frames, or seconds
    mean: np.ndarray
    low: np.ndarray  # of the lowest seed at each x
    high: np.ndarray


class Look(NamedTuple):
    """How the figure is to be drawn."""

    title: str | None
    against: str  # "frames" or "seconds"
    y_label: str
    levels: Sequence[tuple[str, float]]  # (env, value)


def draw(lines: Sequence[Line], look: Look) -> "Figure":
    """A panel per env, at most three beside each other. Raises ConfigError if matplotlib is missing."""
    panels: dict[str, list[Line]] = {}
    for line in lines:
        panels.setdefault(line.env, []).append(line)
    num_columns = min(MAX_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    strokes, unit = _strokes(panels.values()), _unit(lines, look.against)
    with house_style():
        figure = new_figure(_size(list(panels.values()), num_columns))
        for i, (env, members) in enumerate(panels.items()):
            axes = figure.add_subplot(num_rows, num_columns, i + 1)
            _draw_panel(axes, members, strokes, unit.size)
            _draw_levels(axes, [level for name, level in look.levels if name == env])
            axes.set(title=env, xlabel=unit.name, ylabel=look.y_label if i % num_columns == 0 else "")
            axes.locator_params(axis="y", nbins=NUM_TICKS)
            set_x_axis(axes)
        if look.title:
            figure.suptitle(look.title)
    return figure


def house_style() -> AbstractContextManager[None]:
    """Raises ConfigError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(f"curves need matplotlib ({error}): pip install -e '.[plot]'") from None
    return matplotlib.rc_context(STYLE)


def new_figure(size: tuple[float, float]) -> "Figure":
    """size: width and height in inches. Within `house_style`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(size, DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory: no display, and no window system is looked for
    return figure


def set_x_axis(axes: "Axes") -> None:
    """From 0, with short numbers."""
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=NUM_TICKS)
    axes.xaxis.set_major_formatter(lambda x, _: short_number(x))


def stroke(number: int) -> dict[str, str]:
    """Colour and dashes of a line, different for different numbers."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }


def _strokes(panels: Iterable[Sequence[Line]]) -> dict[str, dict[str, str]]:
    """Flags -> colour and dashes: different ones within a panel, the same for the same flags elsewhere."""
    numbers: dict[str, int] = {}
    for lines in panels:
        taken = {numbers[line.flags] for line in lines if line.flags in numbers}
        free = (number for number in itertools.count() if number not in taken)
        for line in lines:
            if line.flags not in numbers:
                numbers[line.flags] = next(free)
    return {flags: stroke(number) for flags, number in numbers.items()}


def _size(panels: Sequence[Sequence[Line]], num_columns: int) -> tuple[float, float]:
    """Width and height in inches."""
    height = 0.0
    for first in range(0, len(panels), num_columns):
        longest = max(_legend_height(panel) for panel in panels[first : first + num_columns])
        height += PANEL_HEIGHT + (longest if longest > MAX_LEGEND_INSIDE else 0) * LEGEND_LINE_HEIGHT
    return WIDTHS[num_columns - 1], height


def _legend_height(lines: Sequence[Line]) -> int:
    """In lines of text."""
    return sum(_label(line).count("\n") + 1 for line in lines)


def _label(line: Line) -> str:
    seeds = "1 seed" if line.num_seeds == 1 else f"{line.num_seeds} seeds"
    return textwrap.fill(f"{line.flags} ({seeds})", LABEL_WIDTH) if line.flags else seeds


def _unit(lines: Sequence[Line], against: str) -> Unit:
    """The same for all panels."""
    if against == "frames":
        return Unit("env frames", 1)
    last = max(line.x[-1] for line in lines)
    return next(unit for limit, unit in TIME_UNITS if last <= limit)


def _draw_panel(
    axes: "Axes", lines: Sequence[Line], strokes: Mapping[str, dict[str, str]], unit_size: float
) -> None:
    for line in lines:
        look, x = strokes[line.flags], line.x / unit_size
        marker = "o" if len(x) == 1 else None  # a line of one point would not be seen
        axes.plot(x, line.mean, marker=marker, label=_label(line), **look)
        if line.num_seeds > 1:
            axes.fill_between(x, line.low, line.high, color=look["color"], alpha=0.18, linewidth=0)
    if _legend_height(lines) <= MAX_LEGEND_INSIDE:
        axes.legend(loc="best")
    else:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)


def _draw_levels(axes: "Axes", levels: Sequence[float]) -> None:
    """Dashed, with the number at the left end, where curves have not come so far yet."""
    for level in levels:
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.0)
        place = {"xy": (0, level), "xycoords": ("axes fraction", "data"), "xytext": (3, 2)}
        axes.annotate(f"{level:g}", **place, textcoords="offset points", color=GREY, size=8.5)


def short_number(number: float) -> str:
    """E.g. 100k, 1.5M, 2B."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
