"""Draws the course of population-based training from an experiment's TensorBoard files.

python -m sample_factory.plotting.plot_population train_dir/experiment --out=pbt.png

The objective and the settings of each policy over its env frames; takeovers are marked.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sample_factory.config.commands import PLOT_POPULATION
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import make_command_parser
from sample_factory.config.population_flags import FLAG_TAG, REPLACED_BY_TAG, SHAPING_TAG
from sample_factory.config.unknown_flags import parse_words
from sample_factory.monitoring.policy_progress import TAGS, tag_of
from sample_factory.plotting import plot_command
from sample_factory.plotting.drawing import MAX_COLUMNS, Line, Panel, draw_panels
from sample_factory.plotting.plot_command import aligned, rounded
from sample_factory.plotting.read_summaries import Curve, label_of, read_policies

TAKEOVER_NOTE = "marker on a line: the policy was replaced by the one that has this marker"
WIDE_RANGE = 10.0  # positive values with a larger ratio of largest to smallest get a logarithmic axis

Policies = Sequence[Mapping[str, Curve]]  # curves by tag


def make_panels(policies: Policies, objective: str, stats_avg: int) -> list[Panel]:
    """Returns a panel for the objective, and one for each setting that varies. Raises ConfigError.

    stats_avg: episodes in a mean of the objective.
    """
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
    """Returns the panel of a tag. is_setting: lines keep a value until the next point."""
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
    """Returns the points at which another policy's weights were taken over, if they change the line."""
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
    """Returns a table of the last values, with a column for each policy."""
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


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    parser = make_command_parser(PLOT_POPULATION)
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="folder of an experiment: train_dir/experiment"
    )
    plot_command.add_out(parser, "pbt.png")
    parser.add_argument(
        "--tag", help="TensorBoard tag of the objective (default: that of --pbt_target_objective)"
    )
    parser.add_argument("--title", help="title above the panels (default: env and folder)")
    arguments = parse_words(parser, argv)
    plot_command.check_out(arguments.out)
    if arguments.folder is None:
        raise ConfigError("no experiment was given: name a folder like train_dir/my_experiment")
    return arguments


def plot(arguments: argparse.Namespace) -> list[str]:
    """Writes the picture; returns the table. Raises ConfigError, and OSError if a file cannot be used."""
    values, policies = read_policies(arguments.folder.expanduser())
    if not any(tag.startswith(FLAG_TAG) for curves in policies for tag in curves):
        raise ConfigError(f"{arguments.folder} was not trained with --with_pbt=True: no setting evolved")
    objective = arguments.tag or tag_of(values["pbt_target_objective"])
    panels = make_panels(policies, objective, values["stats_avg"])
    note = TAKEOVER_NOTE if any(REPLACED_BY_TAG in curves for curves in policies) else ""
    title = arguments.title or f"{values['env']}: {arguments.folder}"
    draw_panels(panels, MAX_COLUMNS, title, note).savefig(arguments.out, dpi="figure")
    return _table(panels, policies)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 2 bad input."""
    return plot_command.run(argv, parse_arguments, plot)


if __name__ == "__main__":
    sys.exit(main())
