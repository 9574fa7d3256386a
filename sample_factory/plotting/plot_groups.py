"""Draws the mean curves of groups of runs, and how far the runs spread: from Python, and for plot_curves."""

import json
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sample_factory.config.experiment_folder import PROVENANCE_KEYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import NOT_RESUMED_FLAGS
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.evaluation.result_statistics import t_quantile
from sample_factory.monitoring.console import aligned
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.drawing import MAX_COLUMNS, Line, Panel, check_out, draw_panels, rounded
from sample_factory.plotting.metrics import (
    TrainedExperiment,
    current_tag,
    find_experiments,
    label_of,
    read_experiment,
)
from sample_factory.runtime.registry import did_you_mean

Folder = str | os.PathLike[str]

MAX_TITLE = 46  # characters above one of several panels
LABEL_WIDTH = 36  # characters in a line of a legend
TIME_UNITS = ((600, "seconds", 1), (3 * 3600, "minutes", 60), (math.inf, "hours", 3600))  # longest line
# Flags that may differ between two experiments that are the same except for chance.
NOT_THE_EXPERIMENT = {
    *("env", "seed", "experiment", "train_dir", "experiments_root"),
    *NOT_RESUMED_FLAGS,
    *RETIRED_FLAGS,
    *PROVENANCE_KEYS,
    *("git_hash", "git_repo_name"),  # of version 2
    *("jsonl_summaries", "with_wandb", "wandb_user", "wandb_project", "wandb_group", "wandb_job_type"),
    *("wandb_tags", "wandb_dir", "wandb_unique_id"),
}
MAX_FLAGS = 10  # in a label
# Name of a shaded area -> what it means, and its columns in a table.
BANDS = {
    "range": ("band: lowest to highest of them", ("min", "max")),
    "std": ("band: one standard deviation to either side", ("mean-std", "mean+std")),
    "ci": ("band: 95 % confidence interval of the mean", ("ci low", "ci high")),
}


class Group(NamedTuple):
    """Holds the experiments of one env whose mean is drawn as one line. label: empty if the env has no other
    line."""

    env: str
    label: str
    experiments: Sequence[TrainedExperiment]


class Averaging(NamedTuple):
    """Says how the curves of a group become one line.
    against: x axis, "frames" or "seconds". band: shaded area, a key of BANDS.
    smooth: from 0 to 1, the share of the x axis before each point over which a run is averaged."""

    against: str = "frames"
    band: str = "range"
    smooth: float = 0.0


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

    groups: label of a line -> folders of experiments, or folders in which experiments lie.
    out: picture to write; its name ends in .png, .svg or .pdf.
    tags: TensorBoard tags, or names of metrics like "reward"; one panel for each.
    against: the x axis, "frames" or "seconds".
    band: "range", "std" (standard deviation) or "ci" (95 % confidence interval of the mean).
    smooth: 0 to 1, share of the x axis before each point over which a run is averaged.
    skip_unreadable: whether to leave out, with a note, runs without the tags and runs that end before another
        run of the same line begins, instead of raising ConfigError.

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
    """Reads the curves of all experiments in some folders. An experiment that is in several of the folders is
    read once.

    skip: whether to leave out every experiment that cannot be read. If False, ConfigError is raised for an
        experiment that is itself one of the folders.
    notes: receives a line of text about each experiment that is left out.
    """
    found = []
    paths = [Path(folder).expanduser() for folder in folders]
    named = {path.resolve() for path in paths}
    experiments = [experiment for path in paths for experiment in find_experiments(path) or [path]]
    for resolved, experiment in {path.resolve(): path for path in experiments}.items():
        try:
            found.append(read_experiment(experiment, tags, policy_index))
        except ConfigError as error:
            if not skip and resolved in named:
                raise
            notes.append(f"left out: {error}")
    return found


def _with_common_part(group: Group, tag: str, against: str, notes: list[str]) -> Group:
    """Returns the group without runs that end before another run of the group begins, such as a run that has
    crashed early.
    notes: receives a line of text about each run that is left out."""
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
    """Draws groups as lines into the file `out`, with a panel for each env and tag. Returns lines of text: a
    table with the last values, and notes about means that end early.
    levels: (env, value) of dashed lines in the panel of the first tag.
    Raises ConfigError without groups, for runs of a group with no x in common, and if `out` cannot be
    written."""
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
    cut_notes = filter(None, (cut_note(group, tags[0], against) for group in groups))
    return [*table, *cut_notes]


def _line(group: Group, x: np.ndarray, mean: np.ndarray, edges: Sequence[np.ndarray]) -> Line:
    num_runs = len(group.experiments)
    label = group.label  # without one, the title of the panel has the number of runs
    if label and num_runs > 1:
        label = f"{label} ({num_runs} runs)"
    label = textwrap.fill(label, LABEL_WIDTH)
    return Line(group.label, label, x, mean, edges if num_runs > 1 else ())


def _in_units_of_time(panels: Sequence[Panel]) -> list[Panel]:
    """Converts the x axes of panels from seconds to seconds, minutes or hours, whichever suits the longest
    line."""
    longest = max(line.x[-1] for panel in panels for line in panel.lines)
    unit, size = next((unit, size) for limit, unit, size in TIME_UNITS if longest <= limit)
    return [
        panel._replace(
            x_label=f"{unit} of training", lines=[line._replace(x=line.x / size) for line in panel.lines]
        )
        for panel in panels
    ]


def _explanation(groups: Sequence[Group], averaging: Averaging) -> str:
    """Returns a note for the figure that explains lines, bands and smoothing; empty if every line is a single
    run as it was recorded."""
    parts = []
    if any(len(group.experiments) > 1 for group in groups):
        parts.append(f"line: mean of the runs; {BANDS[averaging.band][0]}")
    if averaging.smooth > 0:
        parts.append(f"each run is averaged over the last {averaging.smooth:.3g} of the x axis")
    return "; ".join(parts)


def group_labelled(labelled: Mapping[str, Sequence[TrainedExperiment]]) -> list[Group]:
    """Splits the experiments of each label by env; returns a group for each env and label."""
    members: dict[tuple[str, str], list[TrainedExperiment]] = {}
    for label, experiments in labelled.items():
        for experiment in experiments:
            members.setdefault((experiment.env, label), []).append(experiment)
    return [Group(env, label, found) for (env, label), found in members.items()]


def group_by_flags(
    experiments: Sequence[TrainedExperiment], names: Sequence[str] | None = None
) -> list[Group]:
    """Groups experiments that have the same env, version, and values of flags.
    names: the flags to compare, which are also the label; groups are sorted by their values. None: all flags
        except NOT_THE_EXPERIMENT; a label names the flags that differ within an env.
    Raises ConfigError for the name of a flag that no experiment has."""
    known = dict.fromkeys(name for experiment in experiments for name in experiment.flags)
    for name in names or ():
        if name not in known:
            raise ConfigError(f"--group_by={name}: no experiment has that flag{did_you_mean(name, known)}")
    compared = [name for name in known if name not in NOT_THE_EXPERIMENT] if names is None else names
    if names is not None:
        experiments = sorted(
            experiments, key=lambda experiment: [_rank(experiment.flags.get(name)) for name in compared]
        )
    panels: dict[str, dict[tuple[int, tuple[str | None, ...]], list[TrainedExperiment]]] = {}
    for experiment in experiments:
        values = tuple(experiment.flags.get(name) for name in compared)
        panels.setdefault(experiment.env, {}).setdefault((experiment.version, values), []).append(experiment)
    groups = []
    for env, panel in panels.items():
        has_versions = len({version for version, _ in panel}) > 1
        for (version, values), members in panel.items():
            alike = [others for other_version, others in panel if other_version == version]
            shown = [
                f"{name}={_plain(value)}"
                for name, value, of_others in zip(compared, values, zip(*alike))
                if names is not None or len(set(of_others)) > 1
            ]
            if len(shown) > MAX_FLAGS + 1:
                shown[MAX_FLAGS:] = [f"and {len(shown) - MAX_FLAGS} more flags"]
            label = ", ".join([f"version {version}", *shown] if has_versions else shown)
            groups.append(Group(env, label, members))
    return groups


def _rank(text: str | None) -> tuple[int, float, str]:
    """Returns a sort key for the value of a flag: numbers first, then other values, then None. text: JSON."""
    if text is None:
        return (2, 0.0, "")
    value = json.loads(text)
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, text)


def _plain(text: str | None) -> str:
    """Returns the value of a flag as it would be typed. text: the value as JSON; None, for an experiment
    without this flag, returns "unset"."""
    if text is None:
        return "unset"
    value = json.loads(text)
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def mean_of(group: Group, tag: str, averaging: Averaging, longest: float) -> tuple[np.ndarray, ...]:
    """Returns x, mean, and lower and upper edge of the band of a group, float64 [points] each.

    The arrays reach from the latest start to the earliest end of the runs' curves: beyond these, the mean
    would jump where a run starts or ends. x has the points of all runs: between them, the mean of the
    interpolated curves is a straight line.
    longest: largest x of all runs of the env, to which `smooth` refers. Raises ConfigError if the runs have
        no x in common.
    """
    xs = [xs_of(experiment, tag, averaging.against) for experiment in group.experiments]
    first = max(x[0] for x in xs)
    last = min(x[-1] for x in xs)
    if first > last:
        folders = ", ".join(str(experiment.folder) for experiment in group.experiments)
        raise ConfigError(f"these runs of one line have no {averaging.against} in common so far: {folders}")
    grid = np.unique(np.concatenate(xs))
    grid = grid[(grid >= first) & (grid <= last)]
    window = averaging.smooth * longest
    smooth = [_smoothed(x, run.curves[tag].values, window) for x, run in zip(xs, group.experiments)]
    rows = np.array([np.interp(grid, x, values) for x, values in zip(xs, smooth)])
    return grid, rows.mean(0), *_edges(rows, averaging.band)


def xs_of(experiment: TrainedExperiment, tag: str, against: str) -> np.ndarray:
    """Returns the x coordinates of a curve, [points]: env frames or seconds. against: "frames" or
    "seconds"."""
    curve = experiment.curves[tag]
    return curve.steps if against == "frames" else curve.seconds


def _smoothed(x: np.ndarray, values: np.ndarray, window: float) -> np.ndarray:
    """Returns the moving average of a curve: at each point, the mean of the values in the `window` before it,
    in units of x. x: increasing."""
    if window <= 0:
        return values
    sums = np.concatenate(([0.0], np.cumsum(values)))
    begins = np.searchsorted(x, x - window)
    ends = np.arange(1, len(x) + 1)
    means: np.ndarray = (sums[ends] - sums[begins]) / (ends - begins)
    return means


def _edges(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower and upper edge [points] of a band around the mean. values: [runs, points]. band: a
    key of BANDS."""
    if band == "range":
        return values.min(0), values.max(0)
    mean = values.mean(0)
    if len(values) == 1:  # one run has no deviation
        return mean, mean
    half = values.std(0, ddof=1)
    if band == "ci":  # by Student's t distribution
        half = half * t_quantile(len(values) - 1) / len(values) ** 0.5
    return mean - half, mean + half


def cut_note(group: Group, tag: str, against: str) -> str:
    """Returns a text that warns if a group's mean ends early, because one of its runs ends early; otherwise
    ""."""
    ends = {float(xs_of(run, tag, against)[-1]): str(run.folder) for run in group.experiments}
    shortest, longest = min(ends), max(ends)
    if shortest >= 0.9 * longest:
        return ""
    return (
        f"{group.label or group.env} is drawn up to {shortest:,.0f} {against}, where {ends[shortest]} ends; "
        f"the longest of its runs has {longest:,.0f}"
    )
