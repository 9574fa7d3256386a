"""Draws learning curves from the TensorBoard files of experiments.

python -m sample_factory plot_curves train_dir/seed1 train_dir/seed2 --out=curves.png

One panel per env and tag; experiments that differ in nothing but their seed are one line, unless they are
grouped in another way.
"""

import glob
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sample_factory.config.command import Command
from sample_factory.config.flags import ConfigError, flag
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.drawing import check_out, explained, out_flag, report
from sample_factory.plotting.plot_groups import (
    BANDS,
    Averaging,
    draw_picture,
    group_by_flags,
    group_labelled,
    read_runs,
)
from sample_factory.runtime.registry import did_you_mean


@dataclass(frozen=True)
class CurveFlags:
    """Learning curves. Declares the flags of the command `plot_curves`."""

    folders: tuple[str, ...] = flag(
        (),
        "folder of an experiment, train_dir/experiment, or one in which experiments lie; with a label, it "
        "and the folders after it are one line",
        metavar="[LABEL=]FOLDER",
        is_positional=True,
    )
    out: str = out_flag("curves.png")
    tag: tuple[str, ...] = flag(
        (TAGS["reward"],),
        "TensorBoard tag to draw; repeated: a panel for each",
        metavar="TAG",
    )
    against: str = flag("frames", "x axis: env frames, or seconds of training", choices=("frames", "seconds"))
    group_by: str | None = flag(
        None,
        "one line for each value of these flags; of all flags that differ, without the seed, if left out",
        metavar="FLAG[,FLAG]",
    )
    band: str = flag(
        "range",
        "shaded area of several runs: lowest to highest, standard deviation, or 95 % confidence interval of "
        "the mean",
        choices=tuple(BANDS),
    )
    smooth: float = flag(
        0.0,
        "average each run over this share of the x axis before each point, e.g. 0.05",
        metavar="SHARE",
        between=(0, 1),
    )
    title: str | None = flag(None, "title above the panels")
    policy_index: int = flag(0, "policy whose curves are drawn")
    level: tuple[str, ...] = flag(
        (),
        "dashed line in the panel of an env, e.g. at a published figure; may be repeated",
        metavar="ENV=NUMBER",
    )


def labelled_folders(words: Sequence[str]) -> dict[str, list[str]]:
    """Groups the folders on the command line by label: label -> folders. Folders before the first label get
    the label "".
    words: FOLDER or LABEL=FOLDER. A label applies to the folders after it, too. A pattern like
        train_dir/ppo_* is expanded here, since the shell does not expand a pattern with a label before it."""
    labelled: dict[str, list[str]] = {}
    label = ""
    for word in words:
        folder = word
        if "=" in word and not Path(word).expanduser().exists():
            label, _, folder = word.partition("=")
        found = sorted(glob.glob(str(Path(folder).expanduser()))) if glob.has_magic(folder) else []
        labelled.setdefault(label, []).extend(found or [folder])
    return labelled


def _level(text: str) -> tuple[str, float]:
    """Parses a --level, ENV=NUMBER; returns the env and the number. Raises ConfigError for text of another
    form and for a number that is not finite."""
    env, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not env or not math.isfinite(value):
        raise ConfigError(f"--level={text}: should be ENV=NUMBER, e.g. doom_basic=0.75")
    return env, value


def plot(flags: CurveFlags) -> None:
    """Runs the command `plot_curves`: writes the picture, prints the table and notes. Raises ConfigError for
    wrong flags, unreadable experiments, or a picture that cannot be written."""
    check_out(flags.out)
    levels = list(map(_level, flags.level))
    labelled = labelled_folders(flags.folders)
    has_labels = list(labelled) != [""]
    if not labelled:
        raise ConfigError("no experiment was given: name at least one folder like train_dir/my_experiment")
    if has_labels and "" in labelled:
        raise ConfigError(f"{labelled[''][0]} has no label, and others have: write LABEL={labelled[''][0]}")
    if has_labels and flags.group_by:
        raise ConfigError("--group_by has no effect on folders with labels: leave out one of them")
    notes: list[str] = []
    tags = list(dict.fromkeys(flags.tag))
    with explained():
        found = {
            label: read_runs(folders, tags, flags.policy_index, False, notes)
            for label, folders in labelled.items()
        }
        names = None
        if flags.group_by is not None:
            names = [name.strip().lstrip("-") for name in flags.group_by.split(",")]
        groups = group_labelled(found) if has_labels else group_by_flags(found[""], names)
        envs = list(dict.fromkeys(group.env for group in groups))
        for env, _ in levels:
            if env not in envs:
                raise ConfigError(f"--level={env}=...: no experiment has that env{did_you_mean(env, envs)}")
        averaging = Averaging(flags.against, flags.band, flags.smooth)
        lines = draw_picture(groups, Path(flags.out), tags, averaging, flags.title, levels)
    report([*lines, *notes], flags.out)


COMMAND = Command(
    name="plot_curves",
    description="Draws learning curves from the TensorBoard files of experiments, also of versions 1 and 2, "
    "and prints their last values. Each env and tag has a panel; runs that differ only in their seed are one "
    "line, with their range.",
    examples="""
    # Draw the reward of a run into curves.png.
    train_dir/basic
    # Two groups of runs over time, with a published figure as a dashed line.
    new=train_dir/a1 train_dir/a2 old=train_dir/b1 --against=seconds --level=doom_basic=0.75
    # One line for each value of a flag, over all runs in a folder.
    train_dir/grid --group_by=learning_rate --band=ci --smooth=0.05 --out=grid.svg
    """,
    run=plot,
    sections={"curves": CurveFlags},
)
