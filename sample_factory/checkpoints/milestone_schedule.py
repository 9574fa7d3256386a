"""When a milestone is saved."""

import time
from collections.abc import Callable
from pathlib import Path

from sample_factory.runtime.clock import Every, Now

RETRY_SECONDS = 30.0  # after one that could not be saved, say because the disk is full


class MilestoneSchedule:
    """Every so many seconds, and whenever the env frames have passed a multiple of `every_frames`. An
    occasion lasts until a milestone has been saved.
    """

    def __init__(
        self,
        every_sec: float,
        every_frames: int,
        env_frames: int,
        has_milestone: bool,
        now: Now = time.monotonic,
    ):
        """every_sec: -1 for never; every_frames: 0 for never. env_frames: at the start of this run.
        has_milestone: a policy that has none is saved at once, so that there is a past self from then on.
        """
        self._time_is_due = Every(every_sec if every_sec > 0 else float("inf"), now=now)
        self._is_overdue = False
        self._every_frames = every_frames
        self._multiple = self._multiple_of(env_frames) if has_milestone else -1
        self._now, self._not_before = now, now()

    def save_if_due(self, env_frames: int, save: Callable[[], Path | None]) -> Path | None:
        """save: None if it failed. Returns what it does, or None if no milestone is due."""
        self._is_overdue |= self._time_is_due()
        is_wanted = self._is_overdue or self._multiple_of(env_frames) > self._multiple
        if not is_wanted or self._now() < self._not_before:
            return None
        path = save()
        if path is None:
            self._not_before = self._now() + RETRY_SECONDS
        else:
            self._is_overdue, self._multiple = False, self._multiple_of(env_frames)
        return path

    def _multiple_of(self, env_frames: int) -> int:
        return env_frames // self._every_frames if self._every_frames else -1
