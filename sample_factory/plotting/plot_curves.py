"""Draws learning curves from the TensorBoard files of experiments.

python -m sample_factory.plotting.plot_curves train_dir/seed1 train_dir/seed2 --out=curves.png

One panel per env and tag; experiments that differ in nothing but their seed are one line, unless they are
grouped in another way.
"""

import argparse
import glob
import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.commands import PLOT_CURVES
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import make_command_parser
from sample_factory.config.unknown_flags import nearest, parse_words
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting import plot_command
from sample_factory.plotting.plot_groups import (
    BANDS,
    Averaging,
    draw_picture,
    group_by_flags,
    group_labelled,
    read_runs,
)


def _flag_names(text: str) -> list[str]:
    return [name.strip().lstrip("-") for name in text.split(",")]


def _make_parser() -> argparse.ArgumentParser:
    parser = make_command_parser(PLOT_CURVES)
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="[LABEL=]FOLDER",
        help="folder of an experiment, train_dir/experiment, or one in which experiments lie; with a label, "
        "it and the folders after it are one line",
    )
    plot_command.add_out(parser, "curves.png")
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TAG",
        help=f"TensorBoard tag to draw (default: {TAGS['reward']}); repeated: a panel for each",
    )
    parser.add_argument(
        "--against",
        choices=("frames", "seconds"),
        default="frames",
        help="x axis: env frames, or seconds of training (default: frames)",
    )
    parser.add_argument(
        "--group_by",
        type=_flag_names,
        metavar="FLAG[,FLAG]",
        help="one line for each value of these flags (default: of all flags that differ, without the seed)",
    )
    parser.add_argument(
        "--band",
        choices=BANDS,
        default="range",
        help="shaded area of several runs: lowest to highest, standard deviation, or 95 %% confidence "
        "interval of the mean (default: range)",
    )
    parser.add_argument(
        "--smooth",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="average each run over this share of the x axis before each point, e.g. 0.05 (default: 0)",
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
        action="append",
        default=[],
        metavar="ENV=NUMBER",
        help="dashed line in the panel of an env, e.g. at a published figure; may be repeated",
    )
    return parser


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    arguments = parse_words(_make_parser(), argv)
    plot_command.check_out(arguments.out)
    if not arguments.folders:
        raise ConfigError("no experiment was given: name at least one folder like train_dir/my_experiment")
    if not 0 <= arguments.smooth < 1:
        raise ConfigError(f"--smooth={arguments.smooth} should be a share of the x axis, e.g. 0.05")
    form = "ENV=NUMBER, e.g. doom_basic=0.75"
    arguments.level = [plot_command.named_number("--level", text, form) for text in arguments.level]
    arguments.tag = list(dict.fromkeys(arguments.tag or [TAGS["reward"]]))
    return arguments


def labelled_folders(words: Sequence[str]) -> dict[str, list[str]]:
    """Returns label -> folders; the folders before the first label are under the empty label.

    words: folders, or LABEL=FOLDER. A pattern like train_dir/ppo_* stands for what it matches: the shell
    replaces none that has a label before it.
    """
    labelled: dict[str, list[str]] = {}
    label = ""
    for word in words:
        folder = word
        if "=" in word and not Path(word).expanduser().exists():
            label, _, folder = word.partition("=")
        found = sorted(glob.glob(str(Path(folder).expanduser()))) if glob.has_magic(folder) else []
        labelled.setdefault(label, []).extend(found or [folder])
    return labelled


def plot(arguments: argparse.Namespace) -> list[str]:
    """Writes the picture; returns the table and notes. Raises ConfigError."""
    labelled = labelled_folders(arguments.folders)
    has_labels = list(labelled) != [""]
    if has_labels and "" in labelled:
        raise ConfigError(f"{labelled[''][0]} has no label, and others have: write LABEL={labelled[''][0]}")
    if has_labels and arguments.group_by:
        raise ConfigError("--group_by has no effect on folders with labels: leave out one of them")
    notes: list[str] = []
    found = {
        label: read_runs(folders, arguments.tag, arguments.policy_index, False, notes)
        for label, folders in labelled.items()
    }
    groups = group_labelled(found) if has_labels else group_by_flags(found[""], arguments.group_by)
    envs = list(dict.fromkeys(group.env for group in groups))
    for env, _ in arguments.level:
        if env not in envs:
            raise ConfigError(f"--level={env}=...: no experiment has that env{nearest(env, envs)}")
    averaging = Averaging(arguments.against, arguments.band, arguments.smooth)
    lines = draw_picture(groups, arguments.out, arguments.tag, averaging, arguments.title, arguments.level)
    return [*lines, *notes]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 2 bad input."""
    return plot_command.run(argv, parse_arguments, plot)


if __name__ == "__main__":
    sys.exit(main())
