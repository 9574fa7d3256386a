"""Colours, sizes and fonts that all figures share. Imports matplotlib in functions only, since it is slow."""

import textwrap
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sample_factory.config.flags import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 3
WIDTHS = (5.6, 8.4, 10.8)  # inches of a figure with 1, 2 or 3 columns
DOTS_PER_INCH = 150  # a README shows a figure at half its size on ordinary screens, in full on sharp ones
# matplotlib's own choice depends on the size of the panel, which the layout has not chosen yet.
NUM_TICKS = 6
# Distinguishable for most who are colour-blind: the palette of Okabe and Ito without its black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Lengths of dashes and gaps in line widths; () is solid. Where lines cover each other, the gaps show the line
# beneath; without colours, the dashes alone distinguish six lines. "--" in grey is a level.
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (7, 2, 1, 2), (3, 1.5), (7, 2, 1, 2, 1, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # of policies
Y_LABEL_WIDTH = 34  # characters in a line of text beside a panel
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


def house_style(**changes: Any) -> AbstractContextManager[None]:
    """Returns a context in which figures have STYLE, with changes to it.

    changes: matplotlib's settings, with "_" for ".". Raises ConfigError if matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(f"curves need matplotlib ({error}): pip install -e '.[plot]'") from None
    return matplotlib.rc_context(STYLE | {name.replace("_", "."): value for name, value in changes.items()})


def new_figure(size: tuple[float, float]) -> "Figure":
    """Returns an empty figure; call it within `house_style`. size: width and height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(size, DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # draws into memory, so that no display is needed and no window system is loaded
    return figure


def set_x_axis(axes: "Axes") -> None:
    """Makes the x axis start at 0, with short numbers."""
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=NUM_TICKS)
    axes.xaxis.set_major_formatter(lambda x, _: short_number(x))


def set_y_axis(axes: "Axes", label: str) -> None:
    """Writes the label beside the axis, and shortens large numbers. Call it after drawing."""
    first, bracket, rest = label.partition(" (")
    parts = [label] if len(label) <= Y_LABEL_WIDTH else [first, f"({rest}" if bracket else ""]
    axes.set_ylabel("\n".join(line for part in parts for line in textwrap.wrap(part, Y_LABEL_WIDTH)))
    if axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=NUM_TICKS)
        if max(map(abs, axes.get_ylim())) >= MANY:
            axes.yaxis.set_major_formatter(lambda y, _: short_number(y))


def add_note(figure: "Figure", text: str) -> None:
    """Writes a small text beneath the panels."""
    figure.supxlabel(text, size=8.5, color=GREY)


def colour(number: int) -> str:
    """Returns the colour of line `number`."""
    return COLOURS[number % len(COLOURS)]


def dashes(number: int) -> tuple[float, tuple[float, ...]]:
    """Returns the dashes of line `number` (offset, lengths); with the colour they differ for 36 lines."""
    return 0, DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def marker(number: int) -> str:
    """Returns the marker of policy `number`."""
    return MARKERS[number % len(MARKERS)]


def short_number(number: float) -> str:
    """Returns a number such as 100k, 1.5M, 2B."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
