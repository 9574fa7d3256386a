"""Draws what became of a population: a panel for the objective, and one for each setting that evolved."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sample_factory.plotting.draw_curves import (
    GREY,
    MAX_COLUMNS,
    WIDTHS,
    house_style,
    new_figure,
    set_x_axis,
    stroke,
)
from sample_factory.plotting.read_summaries import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_HEIGHT = 2.5  # inches
LEGEND_COLUMNS = 5
WIDE_RANGE = 10.0  # positive numbers whose largest is so many times the smallest are drawn logarithmically


class Takeover(NamedTuple):
    """One policy went on with the weights of another one."""

    receiver: int
    donor: int
    frames: float  # env frames of the receiver


class Panel(NamedTuple):
    """curves: by policy; those without any number are left out."""

    title: str
    curves: Mapping[int, Curve]
    is_setting: bool  # it keeps its value until the next one
    is_rate: bool = False  # factors matter, not differences

    @property
    def is_logarithmic(self) -> bool:
        """Whether its y axis is."""
        values = np.concatenate([curve.values for curve in self.curves.values()])
        if not self.is_setting or values.min() <= 0:
            return False
        return self.is_rate or bool(values.max() >= WIDE_RANGE * values.min())

    def shows(self, takeover: Takeover) -> bool:
        """Whether it made a difference that can be seen."""
        policy, frames = takeover.receiver, takeover.frames
        if policy not in self.curves or not self.is_setting:
            return policy in self.curves
        return self.value_at(policy, frames) != self.value_at(policy, frames - 1)

    def value_at(self, policy: int, frames: float) -> float:
        """On the line that is drawn."""
        curve = self.curves[policy]
        if not self.is_setting:
            return float(np.interp(frames, curve.steps, curve.values))
        return float(curve.values[max(0, np.searchsorted(curve.steps, frames, side="right") - 1)])


def draw(panels: Sequence[Panel], takeovers: Sequence[Takeover], title: str) -> "Figure":
    """The first panel has the legend. Raises ConfigError if matplotlib is missing."""
    num_columns = min(MAX_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    with house_style():
        figure = new_figure((WIDTHS[num_columns - 1], ROW_HEIGHT * num_rows))
        for i, panel in enumerate(panels):
            axes = figure.add_subplot(num_rows, num_columns, i + 1)
            _draw_lines(axes, panel)
            _mark(axes, panel, takeovers)
            axes.set(title=panel.title, xlabel="env frames" if i + num_columns >= len(panels) else "")
            axes.set_yscale("log" if panel.is_logarithmic else "linear")
            set_x_axis(axes)
        figure.suptitle(title)
        figure.legend(*_legend(panels[0], takeovers), loc="outside lower center", ncols=LEGEND_COLUMNS)
    return figure


def _draw_lines(axes: "Axes", panel: Panel) -> None:
    for policy, curve in panel.curves.items():
        style = "steps-post" if panel.is_setting else "default"
        marker = "." if len(curve.steps) == 1 else None  # a line of one point would not be seen
        axes.plot(curve.steps, curve.values, drawstyle=style, marker=marker, **stroke(policy))


def _mark(axes: "Axes", panel: Panel, takeovers: Sequence[Takeover]) -> None:
    """A dot on the receiver's line, in the donor's colour; on that of a setting where it changes it."""
    for takeover in takeovers:
        if panel.shows(takeover):
            y = panel.value_at(takeover.receiver, takeover.frames)
            look = _mark_look(stroke(takeover.receiver)["color"], stroke(takeover.donor)["color"])
            axes.plot([takeover.frames], [y], **look)


def _mark_look(edge: str, face: str) -> dict[str, object]:
    return {
        "marker": "o",
        "markersize": 5.5,
        "markeredgecolor": edge,
        "markerfacecolor": face,
        "markeredgewidth": 1.2,
        "linestyle": "none",
        "zorder": 3,
    }


def _legend(panel: Panel, takeovers: Sequence[Takeover]) -> tuple[list[object], list[str]]:
    """Handles and labels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **stroke(policy)) for policy in panel.curves]
    labels = [f"policy {policy}" for policy in panel.curves]
    if takeovers:
        handles.append(Line2D([], [], **_mark_look(GREY, "white")))
        labels.append("takes over the policy of the dot's colour")
    return handles, labels
