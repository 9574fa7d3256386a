"""Draws a bar chart of speeds."""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sample_factory.config.flags import ConfigError
from sample_factory.plotting.figure_style import COLOURS, GREY, house_style, new_figure, short_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches
BAR_HEIGHT = 0.42
FRAME_HEIGHT = 1.1  # of title, axis and margins
NOTE_HEIGHT = 0.19
OUR_COLOUR = COLOURS[0]
OTHER_COLOUR = "#b0b0b0"


class Bar(NamedTuple):
    """One speed in env frames per second."""

    name: str
    fps: float
    is_ours: bool


def check_drawing() -> None:
    """Raises ConfigError if matplotlib is missing. Call it before a measurement that is to be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("a chart needs matplotlib, which is not installed: pip install -e '.[plot]'")


def draw_bars(bars: Sequence[Bar], title: str, notes: Sequence[str]) -> "Figure":
    """Draws the bars from top to bottom, each with its number. notes: lines beneath the title."""
    with house_style(axes_grid_axis="x", axes_spines_left=False):
        height = FRAME_HEIGHT + NOTE_HEIGHT * len(notes) + BAR_HEIGHT * len(bars)
        figure = new_figure((WIDTH, height))
        axes = figure.add_subplot()
        colours = [OUR_COLOUR if bar.is_ours else OTHER_COLOUR for bar in bars]
        drawn = axes.barh(range(len(bars)), [bar.fps for bar in bars], height=0.7, color=colours)
        axes.bar_label(drawn, [f"{bar.fps:,.0f}" for bar in bars], padding=4)
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
        axes.tick_params(axis="y", length=0, labelcolor="black")
        axes.invert_yaxis()
        axes.margins(x=0.12)  # room for the numbers
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda x, _: short_number(x))
        axes.set_xlabel("env frames per second")
        axes.set_title(title, loc="left", pad=6 + 14 * len(notes))
        text = "\n".join(notes)
        axes.annotate(text, (0, 1), (0, 6), "axes fraction", "offset points", color=GREY, size=8.5)
    return figure
