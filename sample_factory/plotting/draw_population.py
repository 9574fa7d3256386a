"""Draws the course of a population: a panel for the objective, and one for each setting that evolved."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sample_factory.plotting.figure_style import (
    MAX_COLUMNS,
    WIDTHS,
    colour,
    dashes,
    house_style,
    marker,
    new_figure,
    set_x_axis,
    set_y_axis,
)
from sample_factory.plotting.read_summaries import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

ROW_HEIGHT = 2.8  # inches
LEGEND_COLUMNS = 5
TAKEOVER_NOTE = "marker on a line: the policy was replaced by the one that has this marker"
WIDE_RANGE = 10.0  # positive values with a larger ratio of largest to smallest get a logarithmic axis


class Takeover(NamedTuple):
    """One policy continued with the weights of another one."""

    receiver: int
    donor: int
    frames: float  # env frames of the receiver


class Panel(NamedTuple):
    """One panel of the figure. curves: by policy; policies without values are left out."""

    title: str
    y_label: str
    curves: Mapping[int, Curve]
    is_setting: bool  # which keeps its value until the next point
    is_rate: bool = False  # always drawn logarithmically: factors matter, not differences

    @property
    def is_logarithmic(self) -> bool:
        """Whether the y axis is logarithmic."""
        values = np.concatenate([curve.values for curve in self.curves.values()])
        if not self.is_setting or values.min() <= 0:
            return False
        return self.is_rate or bool(values.max() >= WIDE_RANGE * values.min())

    def shows(self, takeover: Takeover) -> bool:
        """Returns whether the takeover changes a value of this panel."""
        policy = takeover.receiver
        frames = takeover.frames
        if policy not in self.curves or not self.is_setting:
            return policy in self.curves
        return self.value_at(policy, frames) != self.value_at(policy, frames - 1)

    def value_at(self, policy: int, frames: float) -> float:
        """Returns the height of the drawn line at that number of env frames."""
        curve = self.curves[policy]
        if not self.is_setting:
            return float(np.interp(frames, curve.steps, curve.values))
        index = int(np.searchsorted(curve.steps, frames, side="right")) - 1
        return float(curve.values[max(0, index)])


def draw(panels: Sequence[Panel], takeovers: Sequence[Takeover], title: str) -> "Figure":
    """Draws the panels; the legend names the policies of the first. Raises ConfigError without matplotlib."""
    num_columns = min(MAX_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    with house_style():
        figure = new_figure((WIDTHS[num_columns - 1], ROW_HEIGHT * num_rows))
        for i, panel in enumerate(panels):
            axes = figure.add_subplot(num_rows, num_columns, i + 1)
            _draw_lines(axes, panel)
            _mark(axes, panel, takeovers)
            axes.set(title=panel.title, xlabel="env frames of the policy")
            axes.set_yscale("log" if panel.is_logarithmic else "linear")
            set_x_axis(axes)
            set_y_axis(axes, panel.y_label)
        figure.suptitle(title)
        handles, labels = _legend(panels[0], takeovers)
        figure.legend(handles, labels, loc="outside lower center", ncols=LEGEND_COLUMNS)
    return figure


def _draw_lines(axes: "Axes", panel: Panel) -> None:
    for policy, curve in panel.curves.items():
        (line,) = axes.plot(curve.steps, curve.values, color=colour(policy), linestyle=dashes(policy))
        line.set_drawstyle("steps-post" if panel.is_setting else "default")
        if len(curve.steps) == 1:  # a line of one point is invisible without a marker
            line.set_marker(".")


def _mark(axes: "Axes", panel: Panel, takeovers: Sequence[Takeover]) -> None:
    """Draws the donor's marker in its colour on the receiver's line, where a takeover changes a value."""
    for takeover in takeovers:
        if panel.shows(takeover):
            y = panel.value_at(takeover.receiver, takeover.frames)
            (dot,) = axes.plot([takeover.frames], [y], linestyle="none", zorder=3)
            _style_marker(dot, takeover.donor, colour(takeover.receiver))


def _style_marker(line: "Line2D", policy: int, edge_colour: str) -> None:
    line.set(
        marker=marker(policy),
        markersize=6.5,
        markeredgecolor=edge_colour,
        markerfacecolor=colour(policy),
        markeredgewidth=1.2,
    )


def _legend(panel: Panel, takeovers: Sequence[Takeover]) -> "tuple[list[Line2D], list[str]]":
    """Returns handles and labels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour(policy), linestyle=dashes(policy)) for policy in panel.curves]
    labels = [f"policy {policy}" for policy in panel.curves]
    if takeovers:
        for handle, policy in zip(handles, panel.curves):
            _style_marker(handle, policy, colour(policy))
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(TAKEOVER_NOTE)
    return handles, labels
