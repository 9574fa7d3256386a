"""Draws figures in one style, panels of lines; and what all commands that draw have: --out, a report.

Imports matplotlib in functions only: it is slow.
"""

import contextlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sample_factory.config.flags import ConfigError, flag
from sample_factory.runtime.log import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 3
WIDTHS = (5.6, 8.4, 10.8)  # inches of a figure with 1, 2 or 3 columns
PANEL_HEIGHT = 3.0  # inches
NOTE_HEIGHT = 0.25
LEGEND_LINE_HEIGHT = 0.16
CHARACTER_WIDTH = 0.075  # inches, in a legend
MAX_MARKED = 30  # points of a line; between few points, a line without markers would look like data
Y_LABEL_WIDTH = 34  # characters in a line of text beside a panel
OUT_SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150  # a README shows a figure at half its size on ordinary screens, in full on sharp ones
# matplotlib's own choice depends on the size of the panel, which the layout has not chosen yet.
NUM_TICKS = 6
# Distinguishable for most who are colour-blind: the palette of Okabe and Ito without its black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Lengths of dashes and gaps in line widths; () is solid. Where lines cover each other, the gaps show the line
# beneath; without colours, the dashes alone distinguish six lines. "--" in grey is a level.
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (7, 2, 1, 2), (3, 1.5), (7, 2, 1, 2, 1, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MANY = 10_000  # numbers from here on are shortened on y axes, too
GREY = "#606060"
# Any: the keys of matplotlib's settings are literals in its type hints.
STYLE: dict[Any, Any] = {
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


class Line(NamedTuple):
    """A line of a panel; arrays are float64 [points].

    key: lines with the same key look the same in all panels.
    label: text in the legend; empty: not in the legend.
    band: lower and upper edge of a shaded area, [points] each; empty: no area.
    marks: (x, y, key) of markers; each has the colour of the line with this key.
    """

    key: str
    label: str
    x: np.ndarray
    y: np.ndarray
    band: Sequence[np.ndarray] = ()
    marks: Sequence[tuple[float, float, str]] = ()


class Panel(NamedTuple):
    """One panel of a figure.
    levels: heights of dashed horizontal lines. steps: whether lines keep a value until the next point.
    logarithmic: whether the y axis is logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    levels: Sequence[float] = ()
    steps: bool = False
    logarithmic: bool = False


def house_style() -> AbstractContextManager[None]:
    """Returns a context in which matplotlib draws with STYLE. Raises ConfigError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(f"a picture needs matplotlib ({error}): pip install -e '.[plot]'") from None
    return matplotlib.rc_context(STYLE)


def new_figure(size: tuple[float, float]) -> "Figure":
    """Returns an empty figure; must be called within `house_style`. size: width and height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(size, DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory, so that no display is needed and no window system is loaded
    return figure


def draw_panels(panels: Sequence[Panel], num_columns: int, title: str = "", note: str = "") -> "Figure":
    """Draws panels in rows of at most `num_columns` (1 to 3), and beneath them, where it hides no curve, a
    legend of all lines and a note. Returns the figure. Raises ConfigError if matplotlib is missing."""
    num_columns = min(num_columns, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    height = num_rows * PANEL_HEIGHT + (NOTE_HEIGHT if note else 0.0)
    keys = dict.fromkeys(line.key for panel in panels for line in panel.lines)
    numbers = {key: number for number, key in enumerate(keys)}
    with house_style():
        figure = new_figure((WIDTHS[num_columns - 1], height))
        for i, panel in enumerate(panels):
            _draw_panel(figure.add_subplot(num_rows, num_columns, i + 1), panel, numbers)
        height += _draw_legend(figure, panels, numbers, note)
        figure.set_size_inches(WIDTHS[num_columns - 1], height)
        if title:
            figure.suptitle(title)
    return figure


def _draw_panel(axes: "Axes", panel: Panel, numbers: Mapping[str, int]) -> None:
    for line in panel.lines:
        number = numbers[line.key]
        (drawn,) = axes.plot(line.x, line.y, label=line.label, color=colour(number))
        drawn.set_linestyle(dashes(number))
        drawn.set_drawstyle("steps-post" if panel.steps else "default")
        if len(line.x) <= MAX_MARKED and not panel.steps:
            drawn.set(marker="o", markersize=3.5)
        if line.band:
            lower, upper = line.band
            axes.fill_between(line.x, lower, upper, color=colour(number), alpha=0.18, linewidth=0)
    for line in panel.lines:
        for x, y, key in line.marks:
            (mark,) = axes.plot([x], [y], linestyle="none", zorder=3)
            mark.set(**_marker_look(numbers.get(key, len(numbers)), numbers[line.key]))
    for level in panel.levels:  # its number is at the left, where curves have not risen that far yet
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.0)
        place = ("axes fraction", "data")
        axes.annotate(f"{level:g}", (0, level), (3, 2), place, "offset points", color=GREY, size=8.5)
    axes.set(title=panel.title, xlabel=panel.x_label)
    axes.set_yscale("log" if panel.logarithmic else "linear")
    _set_axes(axes, panel.y_label)


def _marker_look(number: int, edge: int) -> dict[str, Any]:
    look = {"markersize": 6.5, "markerfacecolor": colour(number), "markeredgewidth": 1.2}
    return {"marker": marker(number), "markeredgecolor": colour(edge), **look}


def _set_axes(axes: "Axes", y_label: str) -> None:
    """Makes the x axis start at 0, shortens large numbers and wraps the y label. Must be called after
    drawing."""
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=NUM_TICKS)
    axes.xaxis.set_major_formatter(lambda x, _: short_number(x))
    first, bracket, rest = y_label.partition(" (")
    parts = [y_label] if len(y_label) <= Y_LABEL_WIDTH else [first, f"({rest}" if bracket else ""]
    axes.set_ylabel("\n".join(line for part in parts for line in textwrap.wrap(part, Y_LABEL_WIDTH)))
    if axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=NUM_TICKS)
        if max(map(abs, axes.get_ylim())) >= MANY:
            axes.yaxis.set_major_formatter(lambda y, _: short_number(y))


def _draw_legend(figure: "Figure", panels: Sequence[Panel], numbers: Mapping[str, int], note: str) -> float:
    """Draws a legend of all lines with a label, titled `note`; without such lines, draws only the note.
    Returns the height of the legend in inches, 0 without one. numbers: key of a line -> its number, which
    decides its marker."""
    drawn = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels())}
    # matplotlib leaves labels that begin with _ out of legends.
    keys = {line.label: line.key for panel in panels for line in panel.lines if line.label in drawn}
    if not keys:
        figure.supxlabel(note, size=8.5, color=GREY)
        return 0.0
    texts = "\n".join(keys).split("\n")
    columns = int(figure.get_figwidth() / (CHARACTER_WIDTH * (max(map(len, texts)) + 8)))
    columns = max(1, min(len(keys), columns))
    handles = [drawn[label] for label in keys]
    legend = figure.legend(handles, list(keys), loc="outside lower center", ncols=columns, title=note)
    legend.get_title().set(color=GREY, size=8.5)
    if any(line.marks for panel in panels for line in panel.lines):
        for handle, key in zip(legend.legend_handles, keys.values()):
            assert handle is not None, "every line has one"
            handle.set(**_marker_look(numbers[key], numbers[key]))
    return LEGEND_LINE_HEIGHT * (math.ceil(len(texts) / columns) + 1)


def colour(number: int) -> str:
    """Returns the colour of line `number`, e.g. "#0072B2". Colours repeat after the last one."""
    return COLOURS[number % len(COLOURS)]


def dashes(number: int) -> tuple[float, tuple[float, ...]]:
    """Returns matplotlib's line style (offset, lengths of dashes and gaps) of line `number`. Colour and
    dashes together distinguish 36 lines."""
    return 0, DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def marker(number: int) -> str:
    """Returns matplotlib's marker of line `number`, e.g. "o". Markers repeat after the last one."""
    return MARKERS[number % len(MARKERS)]


def short_number(number: float) -> str:
    """Returns a number as a short text, such as 100k, 1.5M or 2B."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def out_flag(default: str) -> Any:
    """Returns the field of a flag section for --out, the picture to write, with this default."""
    return flag(
        default, f"picture to write; its name ends in one of {', '.join(OUT_SUFFIXES)}", metavar="FILE"
    )


def check_out(path: str | Path) -> None:
    """Raises ConfigError unless the file name ends in one of OUT_SUFFIXES."""
    if Path(path).suffix.lower() not in OUT_SUFFIXES:
        raise ConfigError(f"--out={path} should end in one of {', '.join(OUT_SUFFIXES)}")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Converts an OSError of the wrapped code into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error


def report(rows: Sequence[str], out: str) -> None:
    """Prints lines of text about a picture, and the name of the picture's file."""
    print(escaped("\n".join([*rows, f"written: {out}"])))


def rounded(value: float) -> str:
    """Returns the value as text: with three decimals, or with three digits if its size is below 0.1."""
    return f"{value:,.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
