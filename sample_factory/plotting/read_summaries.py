"""Reads curves of finished or running experiments from their cfg.json and TensorBoard files."""

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.config import PROVENANCE_KEYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import NOT_RESUMED_FLAGS, RETIRED_FLAGS
from sample_factory.config.sections import TRAINING_SECTIONS, flat_values
from sample_factory.monitoring.policy_progress import TAGS

# Flags that may differ between two experiments that are the same except for chance.
WHERE_AND_SEED = ("seed", "experiment", "train_dir", "experiments_root")
NOT_THE_EXPERIMENT = {*WHERE_AND_SEED, *NOT_RESUMED_FLAGS, *RETIRED_FLAGS, *PROVENANCE_KEYS}
NUM_NEAREST = 5


class Curve(NamedTuple):
    """One scalar over all runs of an experiment: three arrays [points] of float64, ordered by step."""

    steps: np.ndarray
    seconds: np.ndarray  # since the first summary, without pauses between runs and work that was lost
    values: np.ndarray


class TrainedExperiment(NamedTuple):
    """The curve of one experiment, and the flags that decide which line of a figure it belongs to."""

    folder: Path
    env: str
    flags: Mapping[str, str]  # name -> JSON text, without NOT_THE_EXPERIMENT and env
    curve: Curve  # steps in env frames
    stats_avg: int  # episodes in a mean


class _Point(NamedTuple):
    step: int
    seconds: float
    value: float


class _Run(NamedTuple):
    """The records of one event file."""

    began: float  # wall time of its first record
    events: Iterator[Any]  # those after the first record


def read_experiment(folder: Path, tag: str, policy_index: int) -> TrainedExperiment:
    """Reads the curve of a tag. Raises ConfigError if there is no experiment or no such curve."""
    values = _read_cfg(folder / "cfg.json")
    curve = _in_frames(_read_curve(folder, policy_index, tag), values)
    flags = {
        name: json.dumps(value, sort_keys=True)
        for name, value in values.items()
        if name not in NOT_THE_EXPERIMENT and name != "env"
    }
    return TrainedExperiment(folder, values["env"], flags, curve, values["stats_avg"])


def read_policies(folder: Path) -> tuple[dict[str, Any], list[dict[str, Curve]]]:
    """Returns the flags of an experiment, and for each of its policies all curves by tag, in env frames.

    Raises ConfigError if there is no experiment in `folder`, or a policy has no summaries.
    """
    values = _read_cfg(folder / "cfg.json")
    policies = []
    for policy_index in range(values["num_policies"]):
        points = _read_points(folder, policy_index)
        policies.append({tag: _in_frames(_curve(of), values) for tag, of in points.items() if of})
    return values, policies


def _in_frames(curve: Curve, values: Mapping[str, Any]) -> Curve:
    """Returns the curve with steps in env frames. values: of all flags."""
    if values["summaries_use_frameskip"]:
        return curve
    return curve._replace(steps=curve.steps * (values["env_frameskip"] or 1))


def _read_cfg(path: Path) -> dict[str, Any]:
    """Returns the flags of an experiment; a flag that is not in its file has its default."""
    try:
        saved = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"no experiment at {path.parent}: {path.name} is missing; give folders like train_dir/name"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("env"), str):
        raise ConfigError(f"{path} should hold one JSON object of flag names and values, with an env")
    defaults: dict[str, Any] = {}
    for section in TRAINING_SECTIONS.values():
        defaults.update(flat_values(section()))
    return {**defaults, **saved}


def _read_curve(experiment: Path, policy_index: int, tag: str) -> Curve:
    """Reads one curve. Raises ConfigError if there is none."""
    points = _read_points(experiment, policy_index)
    if not points.get(tag):
        raise ConfigError(f"{experiment} has no numbers under the tag {tag}{what_else(tag, points)}")
    return _curve(points[tag])


def _read_points(experiment: Path, policy_index: int) -> dict[str, list[_Point]]:
    """Returns points by tag, over all runs. Raises ConfigError if there are none at all."""
    points: dict[str, list[_Point]] = {}
    for run in _oldest_first(sorted((experiment / ".summary" / str(policy_index)).glob("*tfevents*"))):
        points = _continued(points, run)
    if not points:
        raise ConfigError(f"{experiment} has no summaries of policy {policy_index} yet")
    return points


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
