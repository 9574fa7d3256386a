"""Reads curves of finished or running experiments from their cfg.json and TensorBoard files.

Also those of versions 1 and 2: their curves get the tags of this version.
"""

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.experiment_folder import SAVED_NAMES, old_version
from sample_factory.config.flags import ConfigError
from sample_factory.config.sections import TRAINING_SECTIONS, flat_values
from sample_factory.monitoring.policy_progress import TAGS, tag_of

CURRENT_VERSION = 3
# Version 1 has no flag summaries_use_frameskip: it counts env frames.
DEFAULTS_OF_OLDER_VERSIONS = {
    "num_policies": 1,
    "stats_avg": 100,
    "summaries_use_frameskip": True,
    "env_frameskip": 1,
}
# (beginning of a tag of version 2, of the same figure here); the first that fits counts.
TAGS_OF_VERSION_2 = (
    ("reward/reward", TAGS["reward"]),
    ("len/len", TAGS["len"]),
    ("policy_stats/avg_true_objective", TAGS["true_objective"]),
    ("policy_stats/", "0_aux/"),
    ("perf/", "0_aux/"),
    ("stats/master_process_memory_mb", "0_aux/master_process_memory_mb"),
)
SEARCH_DEPTH = 4  # folders below the one that was named in which experiments are found
NUM_NEAREST = 5


class Curve(NamedTuple):
    """One scalar over all runs of an experiment: three arrays [points] of float64, ordered by step."""

    steps: np.ndarray
    seconds: np.ndarray  # since the first summary, without pauses between runs and work that was lost
    values: np.ndarray


class TrainedExperiment(NamedTuple):
    """Curves of one experiment, and its flags, which decide to which line of a figure it belongs."""

    folder: Path
    env: str
    version: int  # of Sample Factory
    flags: Mapping[str, str]  # name -> JSON text; of older versions, only those in their file
    curves: Mapping[str, Curve]  # by tag; steps in env frames
    stats_avg: int  # episodes in a mean


class _Point(NamedTuple):
    step: int
    seconds: float
    value: float


class _Run(NamedTuple):
    """The records of one event file."""

    began: float  # wall time of its first record
    events: Iterator[Any]  # those after the first record


def find_experiments(folder: Path) -> list[Path]:
    """Returns the folder if it is an experiment, otherwise all experiments below it, by name; none if it has
    none."""
    if any((folder / name).is_file() for name in SAVED_NAMES):
        return [folder]
    found: set[Path] = set()
    for depth in range(1, SEARCH_DEPTH + 1):
        for name in SAVED_NAMES:
            found.update(path.parent for path in folder.glob("*/" * depth + name))
    return sorted(found)


def read_experiment(folder: Path, tags: Sequence[str], policy_index: int) -> TrainedExperiment:
    """Reads the curves of these tags. Raises ConfigError if there is no experiment or no such curve.

    tags: also those of version 2, or the name of a metric such as "reward".
    """
    values, version = _read_cfg(folder)
    points = _read_points(folder, policy_index, version)
    curves = {tag: _in_frames(_curve(points[_find(tag, points, folder)]), values) for tag in tags}
    flags = {name: json.dumps(value, sort_keys=True) for name, value in values.items()}
    return TrainedExperiment(folder, values["env"], version, flags, curves, values["stats_avg"])


def _find(tag: str, points: Mapping[str, Sequence[_Point]], folder: Path) -> str:
    """Returns the tag under which the points of a tag are. Raises ConfigError if there are none."""
    for name in (tag, current_tag(tag)):
        if points.get(name):
            return name
    raise ConfigError(f"{folder} has no numbers under the tag {tag}{what_else(current_tag(tag), points)}")


def current_tag(tag: str) -> str:
    """Returns the tag of this version. tag: a tag of any version, or the name of a metric like "reward"."""
    return tag_of(_translated(tag))


def _translated(tag: str) -> str:
    """Returns the tag of this version for one of version 2."""
    for old, new in TAGS_OF_VERSION_2:
        if tag.startswith(old):
            return new + tag.removeprefix(old)
    return tag


def read_policies(folder: Path) -> tuple[dict[str, Any], list[dict[str, Curve]]]:
    """Returns the flags of an experiment, and for each of its policies all curves by tag, in env frames.

    Raises ConfigError if there is no experiment in `folder`, or a policy has no summaries.
    """
    values, version = _read_cfg(folder)
    policies = []
    for policy_index in range(values["num_policies"]):
        points = _read_points(folder, policy_index, version)
        policies.append({tag: _in_frames(_curve(of), values) for tag, of in points.items() if of})
    return values, policies


def _in_frames(curve: Curve, values: Mapping[str, Any]) -> Curve:
    """Returns the curve with steps in env frames. values: of all flags."""
    if values["summaries_use_frameskip"]:
        return curve
    return curve._replace(steps=curve.steps * (values["env_frameskip"] or 1))


def _read_cfg(folder: Path) -> tuple[dict[str, Any], int]:
    """Returns the flags of an experiment, and the version of Sample Factory that has written them.

    A flag that is not in a file of this version has its default.
    """
    path = next((folder / name for name in SAVED_NAMES if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(f"no experiment at {folder}: cfg.json is missing; give folders like train_dir/name")
    try:
        saved = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("env"), str):
        raise ConfigError(f"{path} should hold one JSON object of flag names and values, with an env")
    version = old_version(saved) or CURRENT_VERSION
    if version != CURRENT_VERSION:
        return {**DEFAULTS_OF_OLDER_VERSIONS, **saved}, version
    defaults: dict[str, Any] = {}
    for section in TRAINING_SECTIONS.values():
        defaults.update(flat_values(section()))
    return {**defaults, **saved}, version


def _read_points(experiment: Path, policy_index: int, version: int) -> dict[str, list[_Point]]:
    """Returns points by tag, over all runs. Raises ConfigError if there are none at all."""
    points: dict[str, list[_Point]] = {}
    for run in _oldest_first(sorted((experiment / ".summary" / str(policy_index)).glob("*tfevents*"))):
        points = _continued(points, run)
    if not points:
        raise ConfigError(f"{experiment} has no summaries of policy {policy_index} yet")
    return {_translated(tag): of for tag, of in points.items()} if version == 2 else points


def _curve(points: Sequence[_Point]) -> Curve:
    by_step = {point.step: point for point in points}  # the last of several points at one step counts
    return Curve(*np.array([by_step[step] for step in sorted(by_step)], np.float64).T)


def _oldest_first(files: Sequence[Path]) -> list[_Run]:
    # Not at the top of the module: it takes 0.2 s, which an error about a mistyped folder should not.
    # The legacy loader does not convert events, which simple values do not need.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    runs = []
    for file in files:
        events = LegacyEventFileLoader(str(file)).Load()
        first = next(events, None)  # the version of the file format
        if first is not None:
            runs.append(_Run(first.wall_time, events))
    return sorted(runs, key=lambda run: run.began)


def _continued(points: Mapping[str, list[_Point]], run: _Run) -> dict[str, list[_Point]]:
    """Returns points by tag: those of earlier runs before this run's first step, then those of this run.

    A run that resumes from a checkpoint repeats the steps after it. A tag without finite values has no
    points.
    """
    kept: dict[str, list[_Point]] | None = None
    for event in run.events:
        if kept is None:
            kept = {tag: [point for point in of if point.step < event.step] for tag, of in points.items()}
            seconds_before = {tag: of[-1].seconds if of else 0.0 for tag, of in kept.items()}
        for scalar in event.summary.value:
            if not scalar.HasField("simple_value"):
                continue
            of_tag = kept.setdefault(scalar.tag, [])
            if math.isfinite(scalar.simple_value):
                seconds = seconds_before.get(scalar.tag, 0.0) + event.wall_time - run.began
                of_tag.append(_Point(event.step, seconds, scalar.simple_value))
    return dict(points) if kept is None else kept


def what_else(tag: str, seen: Iterable[str]) -> str:
    """Returns the end of the message about a missing tag."""
    if tag in TAGS.values():
        return ": too few episodes have ended so far"
    close = difflib.get_close_matches(tag, sorted(seen), n=NUM_NEAREST, cutoff=0.0)
    return f"; the nearest are {', '.join(close)}"
