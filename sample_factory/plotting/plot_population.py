"""Draws the course of population-based training from an experiment's TensorBoard files.

python -m sample_factory plot_population train_dir/experiment --out=pbt.png

The objective and the settings of each policy over its env frames; takeovers are marked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sample_factory.config.command import Command
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.population_flags import FLAG_TAG, REPLACED_BY_TAG, SHAPING_TAG
from sample_factory.monitoring.console import aligned
from sample_factory.monitoring.policy_progress import TAGS, tag_of
from sample_factory.plotting.drawing import (
    MAX_COLUMNS,
    Line,
    Panel,
    check_out,
    draw_panels,
    explained,
    out_flag,
    report,
    rounded,
)
from sample_factory.plotting.metrics import Curve, label_of, read_policies

TAKEOVER_NOTE = "marker on a line: the policy was replaced by the one that has this marker"
WIDE_RANGE = 10.0  # positive values with a larger ratio of largest to smallest get a logarithmic axis

Policies = Sequence[Mapping[str, Curve]]  # curves by tag


@dataclass(frozen=True)
class PopulationFlags:
    """Objective and settings of a population. Declares the flags of the command `plot_population`."""

    folder: str | None = flag(
        None,
        "folder of an experiment: train_dir/experiment",
        metavar="FOLDER",
        is_positional=True,
    )
    out: str = out_flag("pbt.png")
    tag: str | None = flag(
        None, "TensorBoard tag of the objective; that of --pbt_target_objective if left out"
    )
    title: str | None = flag(None, "title above the panels; env and folder if left out")


def make_panels(policies: Policies, objective: str, stats_avg: int) -> list[Panel]:
    """Returns a panel for the objective, and a panel for each setting that varies. Raises ConfigError if no
    policy has values of the objective.
    objective: TensorBoard tag. stats_avg: episodes in a mean of the objective."""
    if objective == TAGS["true_objective"] and not any(objective in curves for curves in policies):
        objective = TAGS["reward"]  # which the true objective is, unless it is written
    label = label_of(objective, stats_avg)
    panels = [_panel(policies, objective, label.partition(" (")[0], label, is_setting=False)]
    if not panels[0].lines:
        raise ConfigError(f"no policy has numbers under the tag {objective}: too few episodes have ended")
    for tag in dict.fromkeys(tag for curves in policies for tag in curves):
        name = tag.removeprefix(FLAG_TAG).removeprefix(SHAPING_TAG)
        if tag.startswith(FLAG_TAG):
            panels.append(_panel(policies, tag, name.replace("_", " "), f"--{name}", is_setting=True))
        elif tag.startswith(SHAPING_TAG):
            title = f"reward shaping: {name}"
            panels.append(_panel(policies, tag, title, f"weight of {name}", is_setting=True))
    return [panels[0], *(panel for panel in panels[1:] if np.ptp(_heights(panel.lines)) > 0)]


def _panel(policies: Policies, tag: str, title: str, y_label: str, is_setting: bool) -> Panel:
    """Returns the panel of a tag, with a line for each policy. is_setting: whether lines keep a value until
    the next point."""
    lines = []
    for policy, curves in enumerate(policies):
        if tag in curves:
            steps, _, values = curves[tag]
            if is_setting:  # written only when it changes
                steps = np.append(steps, max(curve.steps[-1] for curve in curves.values()))
                values = np.append(values, values[-1])
            name = f"policy {policy}"
            line = Line(name, name, steps, values)
            lines.append(line._replace(marks=_marks(line, curves.get(REPLACED_BY_TAG), is_setting)))
    heights = _heights(lines)
    # Of a learning rate, factors matter, not differences.
    is_wide = (
        is_setting
        and len(heights)
        and heights.min() > 0
        and (tag == f"{FLAG_TAG}learning_rate" or heights.max() >= WIDE_RANGE * heights.min())
    )
    return Panel(title, "env frames of the policy", y_label, lines, (), is_setting, bool(is_wide))


def _heights(lines: Sequence[Line]) -> np.ndarray:
    return np.concatenate([[], *(line.y for line in lines)])


def _marks(line: Line, takeovers: Curve | None, is_setting: bool) -> list[tuple[float, float, str]]:
    """Returns `Line.marks` for the moments when the policy of a line took over another policy's weights: a
    marker on the line, with the key of the other policy's line.

    takeovers: env frames of the takeovers; the values are the ids of the other policies; None: no takeovers.
    is_setting: the line shows a setting, not the objective; then takeovers that left its value the same get
        no marker.
    """
    marks = []
    for frames, donor in zip(takeovers.steps, takeovers.values) if takeovers else ():
        height = np.interp(frames, line.x, line.y)
        if is_setting:
            numbers = np.searchsorted(line.x, [frames - 1, frames], side="right")
            before, height = line.y[np.maximum(numbers, 1) - 1]
            if height == before:
                continue
        marks.append((float(frames), float(height), f"policy {int(donor)}"))
    return marks


def _table(panels: Sequence[Panel], policies: Policies) -> list[str]:
    """Returns a table as lines of text, with a column for each policy: the last value of its line in each
    panel, how often it took over another policy's weights, and from which policy last."""
    names = [f"policy {policy}" for policy in range(len(policies))]
    frames = [max(curve.steps[-1] for curve in curves.values()) for curves in policies]
    rows = [["policy", *map(str, range(len(policies)))], ["env frames", *(f"{n:,.0f}" for n in frames)]]
    for panel in panels:
        last = {line.key: rounded(float(line.y[-1])) for line in panel.lines}
        rows.append([panel.title, *(last.get(name, "-") for name in names)])
    donors = [
        list(curves[REPLACED_BY_TAG].values) if REPLACED_BY_TAG in curves else [] for curves in policies
    ]
    rows.append(["takeovers", *(str(len(found)) for found in donors)])
    rows.append(["the last from", *(f"{found[-1]:.0f}" if len(found) else "-" for found in donors)])
    return aligned(rows, "<>")


def plot(flags: PopulationFlags) -> None:
    """Runs the command `plot_population`: writes the picture and prints the table. Raises ConfigError without
    a folder, for an experiment that was not trained with --with_pbt, and for a file that cannot be used."""
    check_out(flags.out)
    if flags.folder is None:
        raise ConfigError("no experiment was given: name a folder like train_dir/my_experiment")
    with explained():
        values, policies = read_policies(Path(flags.folder).expanduser())
        if not any(tag.startswith(FLAG_TAG) for curves in policies for tag in curves):
            raise ConfigError(f"{flags.folder} was not trained with --with_pbt=True: no setting evolved")
        objective = flags.tag or tag_of(values["pbt_target_objective"])
        panels = make_panels(policies, objective, values["stats_avg"])
        note = TAKEOVER_NOTE if any(REPLACED_BY_TAG in curves for curves in policies) else ""
        title = flags.title or f"{values['env']}: {flags.folder}"
        draw_panels(panels, MAX_COLUMNS, title, note).savefig(flags.out, dpi="figure")
    report(_table(panels, policies), flags.out)


COMMAND = Command(
    name="plot_population",
    description="Draws the objective and the evolved settings of every policy of an experiment that was "
    "trained with --with_pbt=True, with a mark for each takeover, and prints their last values.",
    examples="""
    # One run.
    train_dir/population
    # As a vector graphic with a title.
    train_dir/population --out=pbt.svg --title=Duel
    # By another objective.
    train_dir/population --tag=0_aux/avg_reward
    """,
    run=plot,
    sections={"population": PopulationFlags},
)
