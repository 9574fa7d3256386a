"""Draws the curves of groups of runs into a picture: from Python, and for the command plot_curves."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.curve_groups import (
    BANDS,
    Averaging,
    Group,
    cut_notes,
    group_labelled,
    make_lines,
)
from sample_factory.plotting.draw_curves import Line, Look, draw
from sample_factory.plotting.labels import label_of
from sample_factory.plotting.plot_command import aligned, check_out, rounded
from sample_factory.plotting.read_summaries import (
    TrainedExperiment,
    current_tag,
    find_experiments,
    read_experiment,
)

Folder = str | os.PathLike[str]


class Picture(NamedTuple):
    """A picture that was written. table: lines of text with the last values of every line.

    notes: lines of text about means that end early, and runs that were left out.
    """

    path: Path
    table: list[str]
    notes: list[str]


def plot_groups(
    groups: Mapping[str, Sequence[Folder]],
    out: Folder,
    tags: str | Sequence[str] = TAGS["reward"],
    against: str = "frames",
    band: str = "range",
    smooth: float = 0.0,
    title: str | None = None,
    policy_index: int = 0,
    skip_unreadable: bool = False,
) -> Picture:
    """Draws the mean of each group of runs, with a shaded band, and a panel for each env and tag.

    groups: label of a line -> folders of experiments, or folders in which they lie.
    out: picture to write; its name ends in .png, .svg or .pdf.
    tags: TensorBoard tags, or names of metrics like "reward"; one panel for each.
    against: the x axis, "frames" or "seconds".
    band: "range", "std" (standard deviation) or "ci" (95 % confidence interval of the mean).
    smooth: 0 to 1, share of the x axis before each point over which a run is averaged.
    skip_unreadable: leave out runs without the tags, with a note, instead of raising ConfigError.

    Raises ConfigError if there is nothing to draw, if a file cannot be used, or if matplotlib is missing.
    """
    path = Path(out)
    check_out(path)
    tags = [tags] if isinstance(tags, str) else list(tags)
    labelled: dict[str, list[TrainedExperiment]] = {}
    notes: list[str] = []
    for label, folders in groups.items():
        found = read_runs(folders, tags, policy_index, skip_unreadable)
        labelled[label] = found.experiments
        notes += found.left_out
    averaging = Averaging(against, band, smooth)
    picture = draw_picture(group_labelled(labelled), path, tags, averaging, title)
    return picture._replace(notes=[*picture.notes, *notes])


class Runs(NamedTuple):
    """Experiments that were read, and a line of text about each one that was left out."""

    experiments: list[TrainedExperiment]
    left_out: list[str]


def read_runs(folders: Sequence[Folder], tags: Sequence[str], policy_index: int, skip: bool) -> Runs:
    """Reads all experiments in some folders; a folder that is given twice counts once.

    skip: leave out experiments that cannot be read, also those that are named. Raises ConfigError.
    """
    named = {Path(folder).expanduser().resolve(): Path(folder).expanduser() for folder in folders}
    runs = Runs([], [])
    for folder in named.values():
        experiments = find_experiments(folder) or [folder]
        for experiment in experiments:
            try:
                runs.experiments.append(read_experiment(experiment, tags, policy_index))
            except ConfigError as error:
                if not skip and experiments == [folder]:
                    raise
                runs.left_out.append(f"left out: {error}")
    return runs


def draw_picture(
    groups: Sequence[Group],
    out: Path,
    tags: Sequence[str],
    averaging: Averaging,
    title: str | None = None,
    levels: Sequence[tuple[str, float]] = (),
) -> Picture:
    """Writes a picture. levels: (env, value) of dashed lines. Raises ConfigError."""
    if not groups:
        raise ConfigError("there is no run to draw: none of them has numbers under the tag so far")
    lines = make_lines(groups, tags, averaging)
    stats_avg = groups[0].experiments[0].stats_avg
    y_labels = {tag: label_of(current_tag(tag), stats_avg) for tag in tags}
    figure = draw(lines, Look(title, averaging.against, y_labels, levels, _note(lines, averaging)))
    try:
        figure.savefig(out, dpi="figure")
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error
    return Picture(out, table(lines, averaging), cut_notes(groups, tags[0], averaging))


def _note(lines: Sequence[Line], averaging: Averaging) -> str:
    """Returns what lines and bands mean; empty if there is nothing to say."""
    parts = []
    if any(line.num_runs > 1 for line in lines):
        parts.append(f"line: mean of the runs; {BANDS[averaging.band].note}")
    if averaging.smooth > 0:
        parts.append(f"each run is averaged over the last {averaging.smooth:.3g} of the x axis")
    return "; ".join(parts)


def table(lines: Sequence[Line], averaging: Averaging) -> list[str]:
    """Returns a heading, and a row for each line with its last values."""
    columns = ["env", "group", "runs", averaging.against, "mean", *BANDS[averaging.band].columns]
    rows = []
    for line in lines:
        ends = [rounded(float(values[-1])) for values in (line.mean, line.low, line.high)]
        rows.append([line.env, line.label or "-", str(line.num_runs), f"{line.x[-1]:,.0f}", *ends])
    if len({line.tag for line in lines}) == 1:
        return aligned([columns, *rows], "<<>")
    with_tags = [[line.tag, *row] for line, row in zip(lines, rows)]
    return aligned([["tag", *columns], *with_tags], "<<<>")
