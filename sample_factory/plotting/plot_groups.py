"""Draws the curves of groups of runs into a picture: from Python, and for the command plot_curves."""

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.curve_groups import (
    BANDS,
    Averaging,
    Group,
    cut_note,
    group_labelled,
    mean_of,
    xs_of,
)
from sample_factory.plotting.drawing import MAX_COLUMNS, Line, Panel, draw_panels
from sample_factory.plotting.plot_command import aligned, check_out, rounded
from sample_factory.plotting.read_summaries import (
    TrainedExperiment,
    current_tag,
    find_experiments,
    label_of,
    read_experiment,
)

Folder = str | os.PathLike[str]

MAX_TITLE = 46  # characters above one of several panels
LABEL_WIDTH = 36  # characters in a line of a legend
TIME_UNITS = ((600, "seconds", 1), (3 * 3600, "minutes", 60), (math.inf, "hours", 3600))  # longest line


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
) -> list[str]:
    """Draws the mean of each group of runs, with a shaded band, and a panel for each env and tag.

    groups: label of a line -> folders of experiments, or folders in which they lie.
    out: picture to write; its name ends in .png, .svg or .pdf.
    tags: TensorBoard tags, or names of metrics like "reward"; one panel for each.
    against: the x axis, "frames" or "seconds".
    band: "range", "std" (standard deviation) or "ci" (95 % confidence interval of the mean).
    smooth: 0 to 1, share of the x axis before each point over which a run is averaged.
    skip_unreadable: leave out runs without the tags, and runs that end before another one of their line
        begins, with a note, instead of raising ConfigError.

    Returns lines of text: a table with the last values of every line of the picture, then notes about means
    that end early and runs that were left out.

    Raises ConfigError if there is nothing to draw, if a file cannot be used, or if matplotlib is missing.
    """
    path = Path(out)
    check_out(path)
    tags = [tags] if isinstance(tags, str) else list(tags)
    notes: list[str] = []
    labelled = {
        label: read_runs(folders, tags, policy_index, skip_unreadable, notes)
        for label, folders in groups.items()
    }
    lines = group_labelled(labelled)
    if skip_unreadable:
        lines = [_with_common_part(line, tags[0], against, notes) for line in lines]
    return [*draw_picture(lines, path, tags, Averaging(against, band, smooth), title), *notes]


def read_runs(
    folders: Sequence[Folder], tags: Sequence[str], policy_index: int, skip: bool, notes: list[str]
) -> list[TrainedExperiment]:
    """Reads all experiments in some folders; a folder that is given twice counts once.

    skip: leave out every experiment that cannot be read; False: raise ConfigError if it was named itself.
    notes: receives a line of text about each experiment that is left out.
    """
    found = []
    paths = [Path(folder).expanduser() for folder in folders]
    for folder in {path.resolve(): path for path in paths}.values():
        experiments = find_experiments(folder) or [folder]
        for experiment in experiments:
            try:
                found.append(read_experiment(experiment, tags, policy_index))
            except ConfigError as error:
                if not skip and experiments == [folder]:
                    raise
                notes.append(f"left out: {error}")
    return found


def _with_common_part(group: Group, tag: str, against: str, notes: list[str]) -> Group:
    """Returns the group without the runs that end before another one begins, such as a run that has crashed
    early. notes: receives a line of text about each of them."""
    xs = {run.folder: xs_of(run, tag, against) for run in group.experiments}
    runs = sorted(group.experiments, key=lambda run: float(xs[run.folder][-1]))
    while max(xs[run.folder][0] for run in runs) > xs[runs[0].folder][-1]:
        notes.append(f"left out: {runs.pop(0).folder} ends before another run of its line begins")
    return group._replace(experiments=runs)


def draw_picture(
    groups: Sequence[Group],
    out: Path,
    tags: Sequence[str],
    averaging: Averaging,
    title: str | None = None,
    levels: Sequence[tuple[str, float]] = (),
) -> list[str]:
    """Writes a picture; returns a table with the last values, and notes about means that end early.

    levels: (env, value) of dashed lines for the first tag. Raises ConfigError.
    """
    if not groups:
        raise ConfigError("there is no run to draw: none of them has numbers under the tag so far")
    against = averaging.against
    runs_of: dict[str, list[TrainedExperiment]] = {}
    for group in groups:
        runs_of.setdefault(group.env, []).extend(group.experiments)
    panels = []
    rows = []
    for env, runs in runs_of.items():  # the tags of an env side by side
        for tag in tags:
            longest = max(xs_of(run, tag, against)[-1] for run in runs)
            lines = []
            for group in (group for group in groups if group.env == env):
                x, mean, *edges = mean_of(group, tag, averaging, longest)
                lines.append(_line(group, x, mean, edges))
                last = [rounded(float(values[-1])) for values in (mean, *edges)]
                count = str(len(group.experiments))
                rows.append([tag, env, group.label or "-", count, f"{x[-1]:,.0f}", *last])
            panel_title = f"{env} ({runs[0].folder.name if len(runs) == 1 else f'{len(runs)} runs'})"
            if (len(runs) > 1 and any(line.label for line in lines)) or len(panel_title) > MAX_TITLE:
                panel_title = env
            y_label = label_of(current_tag(tag), runs[0].stats_avg)
            heights = [level for name, level in levels if name == env and tag == tags[0]]
            panels.append(Panel(panel_title, "env frames", y_label, lines, heights))
    if against == "seconds":
        panels = _in_units_of_time(panels)
    num_columns = len(tags) if 1 < len(tags) <= MAX_COLUMNS else MAX_COLUMNS
    figure = draw_panels(panels, num_columns, title or "", _explanation(groups, averaging))
    try:
        figure.savefig(out, dpi="figure")
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error
    columns = ["tag", "env", "group", "runs", against, "mean", *BANDS[averaging.band][1]]
    rows = [columns, *sorted(rows, key=lambda row: tags.index(row[0]))]
    table = aligned([row[1:] for row in rows], "<<>") if len(tags) == 1 else aligned(rows, "<<<>")
    return [*table, *filter(None, (cut_note(group, tags[0], against) for group in groups))]


def _line(group: Group, x: np.ndarray, mean: np.ndarray, edges: Sequence[np.ndarray]) -> Line:
    num_runs = len(group.experiments)
    label = group.label  # without one, the title of the panel has the number of runs
    if label and num_runs > 1:
        label = f"{label} ({num_runs} runs)"
    label = textwrap.fill(label, LABEL_WIDTH)
    return Line(group.label, label, x, mean, edges if num_runs > 1 else ())


def _in_units_of_time(panels: Sequence[Panel]) -> list[Panel]:
    """Returns the panels with seconds as their x axis in a unit that suits the longest line."""
    longest = max(line.x[-1] for panel in panels for line in panel.lines)
    unit, size = next((unit, size) for limit, unit, size in TIME_UNITS if longest <= limit)
    return [
        panel._replace(
            x_label=f"{unit} of training", lines=[line._replace(x=line.x / size) for line in panel.lines]
        )
        for panel in panels
    ]


def _explanation(groups: Sequence[Group], averaging: Averaging) -> str:
    """Returns what lines and bands mean; empty if there is nothing to say."""
    parts = []
    if any(len(group.experiments) > 1 for group in groups):
        parts.append(f"line: mean of the runs; {BANDS[averaging.band][0]}")
    if averaging.smooth > 0:
        parts.append(f"each run is averaged over the last {averaging.smooth:.3g} of the x axis")
    return "; ".join(parts)
