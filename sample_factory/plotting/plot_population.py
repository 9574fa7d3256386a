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
from sample_factory.monitoring.policy_progress import TAGS, tag_of
from sample_factory.plotting import plot_command
from sample_factory.plotting.draw_population import Panel, Takeover, draw
from sample_factory.plotting.labels import label_of
from sample_factory.plotting.plot_command import aligned, rounded
from sample_factory.plotting.read_summaries import Curve, read_policies


def make_panels(policies: Sequence[Mapping[str, Curve]], objective: str, stats_avg: int) -> list[Panel]:
    """Returns a panel for the objective, and one for each setting that varies. Raises ConfigError.

    policies: curves by tag. stats_avg: episodes in a mean of the objective.
    """
    drawn = objective
    if objective == TAGS["true_objective"] and not _by_policy(policies, objective):
        drawn = TAGS["reward"]  # which the true objective is, unless it is written
    objectives = _by_policy(policies, drawn)
    if not objectives:
        raise ConfigError(f"no policy has numbers under the tag {objective}: too few episodes have ended")
    label = label_of(drawn, stats_avg)
    panels = [Panel(label.partition(" (")[0], label, objectives, is_setting=False)]
    for prefix, y_label in ((FLAG_TAG, "--{}"), (SHAPING_TAG, "weight of {}")):
        tags = dict.fromkeys(tag for curves in policies for tag in curves if tag.startswith(prefix))
        for tag in tags:
            curves = {
                policy: _up_to(_last_step(policies[policy]), curve)
                for policy, curve in _by_policy(policies, tag).items()
            }
            name = tag.removeprefix(prefix)
            panels.append(
                Panel(
                    _title(prefix, name), y_label.format(name), curves, True, is_rate=name == "learning_rate"
                )
            )
    return [panels[0], *(panel for panel in panels[1:] if _varies(panel))]


def _title(prefix: str, name: str) -> str:
    return name.replace("_", " ") if prefix == FLAG_TAG else f"reward shaping: {name}"


def find_takeovers(policies: Sequence[Mapping[str, Curve]]) -> list[Takeover]:
    """Returns the takeovers by policy, and of each policy by time."""
    return [
        Takeover(policy, int(donor), float(frames))
        for policy, curve in _by_policy(policies, REPLACED_BY_TAG).items()
        for frames, donor in zip(curve.steps, curve.values)
    ]


def table(panels: Sequence[Panel], takeovers: Sequence[Takeover], frames: Sequence[float]) -> list[str]:
    """Returns a table of the last values, with a column for each policy. frames: env frames by policy."""
    policies = range(len(frames))
    rows: list[tuple[str, ...]] = [("policy", *map(str, policies))]
    rows.append(("env frames", *(f"{count:,.0f}" for count in frames)))
    for panel in panels:
        rows.append((panel.title, *(_last_value(panel, policy) for policy in policies)))
    taken = [[str(t.donor) for t in takeovers if t.receiver == policy] for policy in policies]
    rows.append(("takeovers", *(str(len(donors)) for donors in taken)))
    rows.append(("the last from", *(donors[-1] if donors else "-" for donors in taken)))
    return aligned(rows, "<>")


def _last_value(panel: Panel, policy: int) -> str:
    return rounded(panel.curves[policy].values[-1]) if policy in panel.curves else "-"


def _by_policy(policies: Sequence[Mapping[str, Curve]], tag: str) -> dict[int, Curve]:
    return {policy: curves[tag] for policy, curves in enumerate(policies) if tag in curves}


def _last_step(curves: Mapping[str, Curve]) -> float:
    return max(float(curve.steps[-1]) for curve in curves.values())


def _up_to(step: float, curve: Curve) -> Curve:
    """Returns the curve of a setting extended to a step: it is written only when it changes."""
    return Curve(
        np.append(curve.steps, step),
        np.append(curve.seconds, curve.seconds[-1]),
        np.append(curve.values, curve.values[-1]),
    )


def _varies(panel: Panel) -> bool:
    values = np.concatenate([curve.values for curve in panel.curves.values()])
    return bool(values.min() < values.max())


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
    arguments = plot_command.parse(parser, argv)
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
    takeovers = find_takeovers(policies)
    title = arguments.title or f"{values['env']}: {arguments.folder}"
    draw(panels, takeovers, title).savefig(arguments.out, dpi="figure")
    return table(panels, takeovers, [_last_step(curves) for curves in policies])


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 2 bad input."""
    return plot_command.run(argv, parse_arguments, plot)


if __name__ == "__main__":
    sys.exit(main())
