"""Looks for faster values of the flags that decide on speed, one flag at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

FASTER = 1.03  # a gain below 3 % may be chance
MAX_STEPS = 3  # doublings or halvings of one flag
MAX_SPLITS = 4
MAX_BATCH_SIZE = 16384  # larger batches are about something else than speed
# In the order in which they are looked at. The first ones matter most, and change nothing that is learned.
SWEPT_FLAGS = (
    "num_envs_per_worker",
    "worker_num_splits",
    "policy_workers_per_policy",
    "batch_size",
    "num_workers",
)

Values = Mapping[str, int]


class DoesNotRun(Exception):
    """Raised by what measures: a run with these values fails; the message says why, in a line."""


class Trial(NamedTuple):
    """One short run. fps: None if it failed, and then `note` says why."""

    values: Values
    changed: str | None  # the flag that was tried; None in the first trial
    fps: float | None
    is_kept: bool
    note: str = ""


def sweep(
    start: Values, rollout: int, cores: int, measure: Callable[[Values], float], tell: Callable[[Trial], None]
) -> list[Trial]:
    """All trials in turn; the last one that is kept is the fastest.

    start: a value for each of SWEPT_FLAGS. measure: env frames per second with such values, or DoesNotRun;
    what it raises for `start` is raised. tell: called after each trial.
    """
    trials: list[Trial] = []

    def note(trial: Trial) -> None:
        trials.append(trial)
        tell(trial)

    best = Trial(start, None, measure(start), True)
    note(best)
    for flag in SWEPT_FLAGS:
        before = best
        for factor in (2.0, 0.5):
            if best is before:  # what got faster upwards is slower downwards
                ladder = _ladder(flag, best.values, factor, rollout, cores)
                best = _climb(best, flag, ladder, measure, note)
    return trials


def _climb(
    best: Trial,
    flag: str,
    ladder: Sequence[int],
    measure: Callable[[Values], float],
    note: Callable[[Trial], None],
) -> Trial:
    """For as long as it gets faster. Returns the fastest trial, `best` itself if none was faster."""
    for value in ladder:
        trial = _try({**best.values, flag: value}, flag, best.fps, measure)
        note(trial)
        if not trial.is_kept:
            break
        best = trial
    return best


def fastest(trials: Sequence[Trial]) -> Trial:
    return [trial for trial in trials if trial.is_kept][-1]


def _try(values: Values, flag: str, to_beat: float, measure: Callable[[Values], float]) -> Trial:
    try:
        fps = measure(values)
    except DoesNotRun as failure:
        return Trial(values, flag, None, False, str(failure))
    return Trial(values, flag, fps, fps > FASTER * to_beat)


def _ladder(flag: str, values: Values, factor: float, rollout: int, cores: int) -> list[int]:
    """The values of a flag to climb, nearest first, as far as they make sense with the other flags."""
    found = []
    for step in range(1, MAX_STEPS + 1):
        value = values[flag] * factor**step
        if value != int(value) or not _makes_sense(flag, {**values, flag: int(value)}, rollout, cores):
            break
        found.append(int(value))
    return found


def _makes_sense(flag: str, values: Values, rollout: int, cores: int) -> bool:
    if (
        any(value < 1 for value in values.values())
        or values["num_envs_per_worker"] % values["worker_num_splits"]
    ):
        return False
    limits = {
        "worker_num_splits": MAX_SPLITS,
        "policy_workers_per_policy": max(1, cores // 2),
        "batch_size": MAX_BATCH_SIZE,
        "num_workers": 2 * cores,
    }
    if flag == "batch_size" and values[flag] % rollout:
        return False
    return values[flag] <= limits.get(flag, values[flag])
