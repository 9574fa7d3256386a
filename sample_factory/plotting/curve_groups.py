"""Groups of runs as lines of a figure: which runs belong together, their mean, and how far they spread."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.config.experiment_folder import PROVENANCE_KEYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import NOT_RESUMED_FLAGS
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.config.unknown_flags import nearest
from sample_factory.evaluation.result_statistics import t_quantile
from sample_factory.plotting.read_summaries import TrainedExperiment

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
    """The experiments of one env that are one line. label: empty if it is the only line of the env."""

    env: str
    label: str
    experiments: Sequence[TrainedExperiment]


class Averaging(NamedTuple):
    """How the curves of a group become one line.

    against: "frames" or "seconds". band: a key of BANDS. smooth: from 0 to 1, the share of the x axis before
    each point over which a run is averaged.
    """

    against: str = "frames"
    band: str = "range"
    smooth: float = 0.0


def group_labelled(labelled: Mapping[str, Sequence[TrainedExperiment]]) -> list[Group]:
    """Returns a group for each env and label."""
    members: dict[tuple[str, str], list[TrainedExperiment]] = {}
    for label, experiments in labelled.items():
        for experiment in experiments:
            members.setdefault((experiment.env, label), []).append(experiment)
    return [Group(env, label, found) for (env, label), found in members.items()]


def group_by_flags(
    experiments: Sequence[TrainedExperiment], names: Sequence[str] | None = None
) -> list[Group]:
    """Groups experiments with the same env, version, and values of flags.

    names: the flags to compare, which are also the label; groups are in the order of their values. None: all
        flags but NOT_THE_EXPERIMENT; a label has the flags that differ within an env.

    Raises ConfigError for the name of a flag that no experiment has.
    """
    known = dict.fromkeys(name for experiment in experiments for name in experiment.flags)
    for name in names or ():
        if name not in known:
            raise ConfigError(f"--group_by={name}: no experiment has that flag{nearest(name, known)}")
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
    """Returns what values of a flag are sorted by: numbers, then others, then unset ones. text: JSON."""
    if text is None:
        return (2, 0.0, "")
    value = json.loads(text)
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, text)


def _plain(text: str | None) -> str:
    """Returns the value of a flag as it would be typed. text: JSON; None: only another experiment has it."""
    if text is None:
        return "unset"
    value = json.loads(text)
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def mean_of(group: Group, tag: str, averaging: Averaging, longest: float) -> tuple[np.ndarray, ...]:
    """Returns x, mean, and lower and upper edge of the band, each [points] of float64.

    They reach from the last start to the first end of a run's curve: beyond that, the mean would jump with
    each run that ends. The grid has the points of all runs: between them the mean of the interpolated curves
    is a straight line. longest: largest x of all runs of the env. Raises ConfigError for runs that have no
    part in common.
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
    """Returns the x coordinates of a curve: env frames, or seconds."""
    curve = experiment.curves[tag]
    return curve.steps if against == "frames" else curve.seconds


def _smoothed(x: np.ndarray, values: np.ndarray, window: float) -> np.ndarray:
    """Returns at each point the mean of the values at most `window` before it. x: increasing."""
    if window <= 0:
        return values
    sums = np.concatenate(([0.0], np.cumsum(values)))
    begins = np.searchsorted(x, x - window)
    ends = np.arange(1, len(x) + 1)
    means: np.ndarray = (sums[ends] - sums[begins]) / (ends - begins)
    return means


def _edges(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower and the upper edge [points] of a band. values: [runs, points]."""
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
    """Returns a text if the mean of a group ends early, since one of its runs does; empty otherwise."""
    ends = {float(xs_of(run, tag, against)[-1]): str(run.folder) for run in group.experiments}
    shortest, longest = min(ends), max(ends)
    if shortest >= 0.9 * longest:
        return ""
    return (
        f"{group.label or group.env} is drawn up to {shortest:,.0f} {against}, where {ends[shortest]} ends; "
        f"the longest of its runs has {longest:,.0f}"
    )
