"""Reads curves of finished or running experiments from their cfg.json and TensorBoard files.

Curves of experiments of versions 1 and 2 get the tags of this version.
"""

import difflib
import itertools
import json
import math
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sample_factory.config.experiment_folder import (
    SAVED_NAMES,
    experiment_folder,
    find_experiment,
    old_version,
    read_json,
    read_saved,
    saved_path,
)
from sample_factory.config.flags import ConfigError
from sample_factory.config.sections import FLAGS, OWN_FOLDER, RunFlags
from sample_factory.monitoring.policy_progress import TAGS, tag_of
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.safe_files import refuse_special

if TYPE_CHECKING:
    from pandas import DataFrame

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
    ("len/len_", "len/len_"),
    ("len/len", TAGS["len"]),
    ("policy_stats/avg_true_objective", TAGS["true_objective"]),
    ("policy_stats/", "0_aux/"),
    ("perf/", "0_aux/"),
)
# Tags of version 1, and of this version before they left 0_aux -> the same figures now.
MOVED = {
    "0_aux/avg_len_min": "len/len_min",
    "0_aux/avg_len_max": "len/len_max",
    "0_aux/master_process_memory_mb": "stats/master_process_memory_mb",
}
SEARCH_DEPTH = 4  # folders below the one that was named in which experiments are found
MOVED_ASIDE = re.compile(r"_old\d{4}$")  # end of the names that --restart_behavior=restart gives
NUM_NEAREST = 5
# Names of figures, without their group -> what axes call them.
NAMES = {
    "true reward": "true objective",
    "len": "episode length in env frames",
    "fps": "env frames per second",
    "sample throughput": "samples per second",
    "policy lag": "policy lag (SGD steps)",
    "lr": "learning rate",
    "kl divergence": "KL divergence",
}
EXTREMES = (("_min", "lowest "), ("_max", "highest "))
OF_EPISODES = ("0_aux/avg_", "len/")  # beginnings of the tags of means and ranges


class Curve(NamedTuple):
    """One scalar over all runs of an experiment: three arrays, float64 [points], ordered by step. Steps are
    env frames; seconds count from the first summary, without pauses between runs."""

    steps: np.ndarray  # env frames
    seconds: np.ndarray  # since the first summary, without pauses between runs and work that was lost
    values: np.ndarray


class TrainedExperiment(NamedTuple):
    """Holds the curves of one experiment, and the flags by which experiments are grouped to lines of a
    figure.
    version: version of Sample Factory that has trained it. stats_avg: number of episodes in a mean.
    flags: name -> value as JSON text; of older versions, only the flags in their file.
    curves: TensorBoard tag, as the caller has named it -> curve."""

    folder: Path
    env: str
    version: int  # of Sample Factory
    flags: Mapping[str, str]  # name -> JSON text; of older versions, only the flags in their file
    curves: Mapping[str, Curve]  # by tag
    stats_avg: int  # episodes in a mean


def find_experiments(folder: Path) -> list[Path]:
    """Returns the folder if it is an experiment; otherwise all experiments below it, sorted by path. Leaves
    out experiments that are within another experiment or in a hidden folder, or that a restart has moved
    aside."""
    if saved_path(folder) is not None:
        return [folder]
    patterns = ["*/" * depth + name for depth in range(SEARCH_DEPTH + 1) for name in SAVED_NAMES]
    found = {path.parent for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if found.isdisjoint(path.parents) and not _is_spare(path, folder))


def _is_spare(path: Path, folder: Path) -> bool:
    """Returns whether an experiment below `folder` is a copy to leave out: it is in a hidden folder, such as
    a copy for the Hub, or was moved aside by the restart of an experiment that still exists."""
    if any(name.startswith(".") for name in path.relative_to(folder).parts):
        return True
    name = MOVED_ASIDE.sub("", path.name)
    return name != path.name and saved_path(path.with_name(name)) is not None


def read_experiment(folder: Path, tags: Sequence[str], policy_index: int) -> TrainedExperiment:
    """Reads the curves of one policy with some tags.
    tags: tags of this version or of version 2, or names of metrics such as "reward".
    Raises ConfigError if there is no experiment in the folder, or a curve is missing."""
    values, version = _read_cfg(folder)
    known = _read_curves(folder, policy_index, values, version)
    curves = {}
    for tag in tags:
        found = known.get(tag, known.get(current_tag(tag)))
        if found is None and current_tag(tag) == TAGS["true_objective"]:
            found = known.get(TAGS["reward"])  # which the true objective is, unless it is written
        if found is None:
            raise ConfigError(
                f"{folder} has no numbers under the tag {tag}{what_else(current_tag(tag), known)}"
            )
        curves[tag] = found
    flags = {name: json.dumps(value, sort_keys=True) for name, value in values.items()}
    return TrainedExperiment(folder, values["env"], version, flags, curves, values["stats_avg"])


def read_policies(folder: Path) -> tuple[dict[str, Any], list[dict[str, Curve]]]:
    """Returns the flags of an experiment, and all curves of each policy, tag -> curve. Raises ConfigError if
    there is no experiment in `folder`, or a policy has no summaries."""
    values, version = _read_cfg(folder)
    return values, [_read_curves(folder, index, values, version) for index in range(values["num_policies"])]


def read_metrics(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    tags: str | Sequence[str] | None = None,
) -> "DataFrame":
    """Reads all numbers that an experiment has written for TensorBoard, also while it is trained.

    For example:

        metrics = sample_factory.read_metrics("cartpole", tags=["0_aux/avg_reward", "train/entropy"])
        curves = metrics.pivot(index="env_frames", columns="tag", values="value")

    Args:
        experiment: Name of an experiment in `train_dir`, or its folder.
        train_dir: Folder of all experiments; by default ./train_dir.
        tags: One tag or several, e.g. "0_aux/avg_reward"; by default all of them.

    Returns:
        A table with a row for each number, in the order of policy, tag and env_frames. The columns are
            `policy` (int64), `tag` (text), `env_frames` (int64, trained on so far in all runs), `seconds`
            (float64, since the first number, without pauses between runs) and `value` (float64). Pivot the
            rows of one policy only.

    Raises:
        ConfigError: There is no such experiment (the message names others beside it), or no policy has such a
            tag. A subclass of ValueError.
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"read_metrics needs pandas ({error}): pip install -e '.[pandas]'") from None
    named = find_experiment(experiment, train_dir)
    place = {name: value for name, value in named.items() if name in OWN_FOLDER}
    read_saved(place, evaluation=True)  # raises, with the experiments that there are
    _, policies = read_policies(experiment_folder(RunFlags(**place)))
    known = {tag for curves in policies for tag in curves}
    wanted = known if tags is None else {tags} if isinstance(tags, str) else set(tags)
    for tag in sorted(wanted - known):
        raise ConfigError(f"there are no numbers under the tag {tag}{what_else(tag, known)}")
    tables = [
        pandas.DataFrame(
            {
                "policy": policy,
                "tag": tag,
                "env_frames": curves[tag].steps.astype(np.int64),
                "seconds": curves[tag].seconds,
                "value": curves[tag].values,
            }
        )
        for policy, curves in enumerate(policies)
        for tag in sorted(wanted & set(curves))
    ]
    return pandas.concat(tables, ignore_index=True)


def current_tag(tag: str) -> str:
    """Converts a tag of any version, or the name of a metric like "reward", to the tag of this version."""
    if tag in MOVED:
        return MOVED[tag]
    old, new = next((pair for pair in TAGS_OF_VERSION_2 if tag.startswith(pair[0])), ("", ""))
    return tag_of(new + tag.removeprefix(old))


def label_of(tag: str, stats_avg: int) -> str:
    """Returns the label of an axis that shows a tag. stats_avg: number of episodes in a mean."""
    start = next((start for start in OF_EPISODES if tag.startswith(start)), "")
    name = tag.removeprefix(start)
    words = name.rpartition("/")[2].replace("_", " ").strip() or tag
    if name == tag:
        return NAMES.get(words, words)
    for suffix, extreme in EXTREMES:
        if name.endswith(suffix):
            words = words[: -len(suffix)]
            return f"{extreme}{NAMES.get(words, words)} of the last {stats_avg} episodes"
    return f"{NAMES.get(words, words)} (mean of the last {stats_avg} episodes)"


def what_else(tag: str, seen: Iterable[str]) -> str:
    """Returns the end of an error message about a missing tag: the reason why there are no values, or the
    most similar tags among `seen`."""
    if tag in TAGS.values():
        return ": too few episodes have ended so far"
    close = difflib.get_close_matches(tag, sorted(seen), n=NUM_NEAREST, cutoff=0.0)
    return f"; the nearest are {', '.join(close)}"


def _read_cfg(folder: Path) -> tuple[dict[str, Any], int]:
    """Returns the flags of an experiment, and the version of Sample Factory that has written them. Flags that
    are missing in a file of this version get their defaults. Raises ConfigError if there is no experiment."""
    path = saved_path(folder)
    if path is None:
        raise ConfigError(f"no experiment at {folder}: cfg.json is missing; give folders like train_dir/name")
    saved = read_json(path)
    if not isinstance(saved.get("env"), str):
        raise ConfigError(f"{path} should hold one JSON object of flag names and values, with an env")
    version = old_version(saved) or CURRENT_VERSION
    if version != CURRENT_VERSION:
        return {**DEFAULTS_OF_OLDER_VERSIONS, **saved}, version
    return {**{name: field.default for name, field in FLAGS.items()}, **saved}, version


def _read_curves(
    folder: Path, policy_index: int, values: Mapping[str, Any], version: int
) -> dict[str, Curve]:
    """Reads the curves of a policy from its event files: tag -> curve. Raises ConfigError if there are none.
    values, version: flags of the experiment, and the version that has written them."""
    runs = []  # (wall time of the first record, the records after it)
    for file in sorted((folder / ".summary" / str(policy_index)).glob("*tfevents*")):
        events = EventFile(file).new_events()
        first = next(events, None)  # the version of the file format
        if first is not None:
            runs.append((first.wall_time, events))
    points: dict[str, dict[int, tuple[float, float]]] = {}
    for began, events in sorted(runs, key=operator.itemgetter(0)):
        points = _continued(points, began, events)
    if not points:
        raise ConfigError(f"{folder} has no summaries of policy {policy_index} yet")
    frames = 1 if values["summaries_use_frameskip"] else values["env_frameskip"] or 1
    curves = {}
    for tag, of_tag in points.items():
        rows = np.array([(step * frames, *of_tag[step]) for step in sorted(of_tag)], np.float64)
        curves[current_tag(tag) if version == 2 else MOVED.get(tag, tag)] = Curve(*rows.T)
    return curves


class EventFile:
    """Reads a TensorBoard event file, which may be damaged or malicious, and may still be written."""

    def __init__(self, file: Path):
        """Opens the file; raises ConfigError for a named pipe, a device or a socket."""
        # Not at the top of the module: it takes 0.2 s, which an error about a mistyped folder should not.
        # The legacy loader does not convert events, which simple values do not need.
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        try:
            refuse_special(file)
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
        self._file = file
        self._loader = LegacyEventFileLoader(str(file))

    def new_events(self) -> Iterator[Any]:
        """Yields TensorBoard's events that were written since the last call. Raises ConfigError for a damaged
        file."""
        try:
            yield from self._loader.Load()
        except Exception as error:  # whatever TensorBoard raises, e.g. MemoryError for an event of 2^62 bytes
            raise ConfigError(f"cannot read {self._file}: it is damaged ({one_line(error)})") from None


def _continued(
    points: Mapping[str, Mapping[int, tuple[float, float]]], began: float, events: Iterable[Any]
) -> dict[str, dict[int, tuple[float, float]]]:
    """Merges the events of a later run into curves: keeps the points before the run's first step, then adds
    its points, since a run that resumes from a checkpoint repeats the steps after the checkpoint. Returns tag
    -> step -> (seconds, value); of several values at one step, the last finite one counts.
    points: curves so far, in the form that is returned. began: wall time of the run's start."""
    events = iter(events)
    first = next(events, None)
    if first is None:
        return {tag: dict(of_tag) for tag, of_tag in points.items()}
    kept = {
        tag: {step: point for step, point in of_tag.items() if step < first.step}
        for tag, of_tag in points.items()
    }
    # The same for all tags: one that is written rarely may have its last point long before the resume.
    times = ((step, seconds) for of_tag in kept.values() for step, (seconds, _) in of_tag.items())
    _, seconds_before = max(times, default=(0, 0.0))
    for event in itertools.chain([first], events):
        for scalar in event.summary.value:
            if scalar.HasField("simple_value") and math.isfinite(scalar.simple_value):
                seconds = seconds_before + event.wall_time - began
                kept.setdefault(scalar.tag, {})[event.step] = (seconds, scalar.simple_value)
    return {tag: of_tag for tag, of_tag in kept.items() if of_tag}
