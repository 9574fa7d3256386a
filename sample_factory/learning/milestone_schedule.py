"""When a milestone is saved."""

from sample_factory.runtime.clock import Every


class MilestoneSchedule:
    """Every so many seconds, and whenever the env frames have passed a multiple of `every_frames`."""

    def __init__(self, every_sec: float, every_frames: int, env_frames: int):
        """every_sec: -1 for never; every_frames: 0 for never. env_frames: at the start of this run; a policy
        that starts from nothing is saved at once, so that there is a past self from the first moment on.
        """
        self._time_is_due = Every(every_sec if every_sec > 0 else float("inf"))
        self._every_frames = every_frames
        self._multiple = self._multiple_of(env_frames) if env_frames else -1

    def is_due(self, env_frames: int) -> bool:
        """Once for each occasion."""
        former, self._multiple = self._multiple, self._multiple_of(env_frames)
        return self._time_is_due() or self._multiple > former

    def _multiple_of(self, env_frames: int) -> int:
        return env_frames // self._every_frames if self._every_frames else -1
