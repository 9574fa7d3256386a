"""Draws learning curves from the TensorBoard files of experiments.

python -m sample_factory.plotting.plot_curves train_dir/seed1 train_dir/seed2 --out=curves.png

One panel per env; experiments that differ in nothing but their seed are one line.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory.config.commands import PLOT_CURVES
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import make_command_parser
from sample_factory.config.unknown_flags import nearest
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting import plot_command
from sample_factory.plotting.draw_curves import Line, Look, draw
from sample_factory.plotting.labels import label_of
from sample_factory.plotting.plot_command import aligned, rounded
from sample_factory.plotting.read_summaries import TrainedExperiment, read_experiment

UNSET = "unset"  # value of a flag that only another experiment of the panel has


def make_lines(experiments: Sequence[TrainedExperiment], against: str) -> list[Line]:
    """Returns a line for each env and set of flags, in the order of the experiments. Raises ConfigError."""
    groups: dict[str, dict[tuple[Any, ...], list[TrainedExperiment]]] = {}
    for experiment in experiments:
        key = tuple(sorted(experiment.flags.items()))
        groups.setdefault(experiment.env, {}).setdefault(key, []).append(experiment)
    lines = []
    for panel in groups.values():
        varied = _varied_flags([members[0].flags for members in panel.values()])
        for members in panel.values():
            flags = ", ".join(f"{name}={_plain(members[0].flags.get(name))}" for name in varied)
            lines.append(_over_seeds(members, flags, against))
    return lines


def _varied_flags(several: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the names of the flags that have more than one value."""
    names = dict.fromkeys(name for flags in several for name in flags)
    return [name for name in names if len({flags.get(name) for flags in several}) > 1]


def _plain(text: str | None) -> str:
    """Returns the value of a flag as it would be typed. text: JSON."""
    if text is None:
        return UNSET
    value = json.loads(text)
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _over_seeds(members: Sequence[TrainedExperiment], flags: str, against: str) -> Line:
    """Returns mean and range over the seeds, from the last start to the first end of a seed's curve.

    Beyond that, the mean would jump with each seed that ends. The grid has the points of all seeds: between
    them the mean of the interpolated curves is a straight line.
    """
    curves = [member.curve for member in members]
    xs = [curve.steps if against == "frames" else curve.seconds for curve in curves]
    first = max(x[0] for x in xs)
    last = min(x[-1] for x in xs)
    if first > last:
        folders = ", ".join(str(member.folder) for member in members)
        raise ConfigError(f"these seeds of one line have no {against} in common so far: {folders}")
    grid = np.unique(np.concatenate(xs))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.array([np.interp(grid, x, curve.values) for x, curve in zip(xs, curves)])
    names = tuple(member.folder.name for member in members)
    return Line(members[0].env, flags, names, grid, values.mean(0), values.min(0), values.max(0))


def table(lines: Sequence[Line], against: str) -> list[str]:
    """Returns a heading, and a row for each line with its last values."""
    rows: list[tuple[str, ...]] = [("env", "flags", "runs", against, "mean", "min", "max")]
    for line in lines:
        ends = (rounded(values[-1]) for values in (line.mean, line.low, line.high))
        rows.append((line.env, line.flags or "-", str(line.num_runs), f"{line.x[-1]:,.0f}", *ends))
    return aligned(rows, "<<>")


def _level(text: str) -> tuple[str, float]:
    env, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not env or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} should be ENV=NUMBER, e.g. doom_basic=0.75")
    return env, value


def _make_parser() -> argparse.ArgumentParser:
    parser = make_command_parser(PLOT_CURVES)
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="folder of an experiment: train_dir/experiment",
    )
    plot_command.add_out(parser, "curves.png")
    parser.add_argument(
        "--tag", default=TAGS["reward"], help=f"TensorBoard tag to draw (default: {TAGS['reward']})"
    )
    parser.add_argument(
        "--against",
        choices=("frames", "seconds"),
        default="frames",
        help="x axis: env frames, or seconds of training (default: frames)",
    )
    parser.add_argument("--title", help="title above the panels")
    parser.add_argument(
        "--policy_index",
        type=int,
        metavar="INT",
        default=0,
        help="policy whose curves are drawn (default: 0)",
    )
    parser.add_argument(
        "--level",
        type=_level,
        action="append",
        default=[],
        metavar="ENV=NUMBER",
        help="dashed line in the panel of an env, e.g. at a published figure; may be repeated",
    )
    return parser


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    arguments = plot_command.parse(_make_parser(), argv)
    if not arguments.folders:
        raise ConfigError("no experiment was given: name at least one folder like train_dir/my_experiment")
    return arguments


def plot(arguments: argparse.Namespace) -> list[str]:
    """Writes the picture; returns the table. Raises ConfigError, and OSError if a file cannot be used."""
    # A folder that is given twice is one seed.
    folders = {folder.expanduser().resolve(): folder for folder in arguments.folders}
    experiments = [
        read_experiment(folder.expanduser(), arguments.tag, arguments.policy_index)
        for folder in folders.values()
    ]
    envs = list(dict.fromkeys(experiment.env for experiment in experiments))
    for env, _ in arguments.level:
        if env not in envs:
            raise ConfigError(f"--level={env}=...: no experiment has that env{nearest(env, envs)}")
    lines = make_lines(experiments, arguments.against)
    y_label = label_of(arguments.tag, experiments[0].stats_avg)
    figure = draw(lines, Look(arguments.title, arguments.against, y_label, arguments.level))
    figure.savefig(arguments.out, dpi="figure")
    return table(lines, arguments.against)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 2 bad input."""
    return plot_command.run(argv, parse_arguments, plot)


if __name__ == "__main__":
    sys.exit(main())
