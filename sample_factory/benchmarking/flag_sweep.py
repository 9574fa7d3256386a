"""Searches for faster values of the flags that decide on speed, one flag at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sample_factory.runtime.failures import CommandFailed

FASTER = 1.03  # a gain below 3 % may be chance
MAX_STEPS = 3  # doublings or halvings of one flag
MAX_SPLITS = 4
MAX_BATCH_SIZE = 16384  # larger batches change what is learned more than the speed
# In the order of the search. The first ones matter most, and change nothing about what is learned.
SWEPT_FLAGS = (
    "num_envs_per_worker",
    "inline_samplers",
    "worker_num_splits",
    "policy_workers_per_policy",
    "batch_size",
    "num_workers",
)

Values = Mapping[str, int]


class DoesNotRun(CommandFailed):
    """Raised by the measuring function when a run with these values fails. note: the reason in one line."""

    def __init__(self, message: str, note: str):
        super().__init__(message)
        self.note = note


class Trial(NamedTuple):
    """One short run. fps: None if it failed; `note` then says why."""

    values: Values
    changed: str | None  # the flag that was tried; None in the first trial
    fps: float | None
    is_kept: bool
    note: str = ""


class _Kept(NamedTuple):
    """The fastest values so far."""

    values: Values
    fps: float


def sweep(
    start: Values,
    rollout: int,
    cores: int,
    measure: Callable[[Values], float],
    on_trial: Callable[[Trial], None],
) -> list[Trial]:
    """Returns all trials in their order; the last one that is kept is the fastest.

    start: a value for each of SWEPT_FLAGS.
    rollout: the flag, of which every batch size is a multiple.
    cores: number of CPU cores, which limits the number of processes.
    measure: returns env frames per second with such values, or raises DoesNotRun, which propagates for
        `start`.
    on_trial: called after each trial.
    """
    trials: list[Trial] = []

    def record(trial: Trial) -> None:
        trials.append(trial)
        on_trial(trial)

    best = _Kept(start, measure(start))
    record(Trial(start, None, best.fps, True))
    for flag in SWEPT_FLAGS:
        before = best
        for factor in (2.0, 0.5):
            if best is before:  # a flag that is faster upwards is not tried downwards
                ladder = _ladder(flag, best.values, factor, rollout, cores)
                best = _climb(best, flag, ladder, measure, record)
    return trials


def _climb(
    best: _Kept,
    flag: str,
    ladder: Sequence[int],
    measure: Callable[[Values], float],
    record: Callable[[Trial], None],
) -> _Kept:
    """Tries the values of the ladder until one is not faster. Returns the fastest, or `best` itself."""
    for value in ladder:
        trial = _try({**best.values, flag: value}, flag, best.fps, measure)
        record(trial)
        if not trial.is_kept or trial.fps is None:
            break
        best = _Kept(trial.values, trial.fps)
    return best


def fastest(trials: Sequence[Trial]) -> Trial:
    return [trial for trial in trials if trial.is_kept][-1]


def _try(values: Values, flag: str, to_beat: float, measure: Callable[[Values], float]) -> Trial:
    try:
        fps = measure(values)
    except DoesNotRun as failure:
        return Trial(values, flag, None, False, failure.note)
    return Trial(values, flag, fps, fps > FASTER * to_beat)


def _ladder(flag: str, values: Values, factor: float, rollout: int, cores: int) -> list[int]:
    """Returns the values of a flag to try, nearest first, as far as they are valid with the other flags."""
    if flag == "inline_samplers":  # one per core, or none
        most = min(cores, values["num_workers"])
        other = most if factor > 1 else 0
        return [other] if other != values[flag] else []
    found = []
    for step in range(1, MAX_STEPS + 1):
        value = values[flag] * factor**step
        if value != int(value) or not _is_valid(flag, {**values, flag: int(value)}, rollout, cores):
            break
        found.append(int(value))
    return found


def _is_valid(flag: str, values: Values, rollout: int, cores: int) -> bool:
    if (
        any(value < 1 for name, value in values.items() if name != "inline_samplers")
        or values["inline_samplers"] > values["num_workers"]
        or values["num_envs_per_worker"] % values["worker_num_splits"]
    ):
        return False
    limits = {
        "worker_num_splits": MAX_SPLITS,
        "policy_workers_per_policy": 1 if values["inline_samplers"] else max(1, cores // 2),
        "batch_size": MAX_BATCH_SIZE,
        "num_workers": 2 * cores,
    }
    if flag == "batch_size" and values[flag] % rollout:
        return False
    return values[flag] <= limits.get(flag, values[flag])
