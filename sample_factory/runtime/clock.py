"""Measures where time is spent, and events per second."""

import collections
import math
import time
from collections.abc import Callable, Sequence

Now = Callable[[], float]  # seconds; any origin


class Clock:
    """Splits a loop's time among names: `clock.lap("step")` adds the time since the last lap to "step".

    A lap takes less than a microsecond.

    totals: seconds by name since the construction or the last `take_shares`; they add up to the whole time.
    """

    def __init__(self, now: Now = time.perf_counter):
        self._now = now
        self.totals: dict[str, float] = collections.defaultdict(float)
        self._last = now()

    def lap(self, name: str) -> None:
        now = self._now()
        self.totals[name] += now - self._last
        self._last = now

    def take_shares(self) -> dict[str, float]:
        """Returns each name's fraction of the total time, then resets `totals`.
        The fractions sum to 1; empty without laps. The time since the last lap counts to the next lap."""
        whole = sum(self.totals.values())
        shares = {name: seconds / whole for name, seconds in self.totals.items() if whole > 0}
        self.totals.clear()
        return shares


class Every:
    """A timer: a call returns True at most once per `seconds`, for `if every():`; always False if `seconds`
    <= 0."""

    def __init__(self, seconds: float, at_first: bool = False, now: Now = time.monotonic):
        """Starts the timer. `at_first`: whether the first call returns True, rather than the first after
        `seconds`."""
        self._seconds = seconds
        self._now = now
        self._next = -math.inf if at_first else now() + seconds

    def __call__(self) -> bool:
        now = self._now()
        if self._seconds <= 0 or now < self._next:
            return False
        self._next = now + self._seconds
        return True


class RateWindow:
    """Computes events per second, e.g. over the last 10 and over the last 60 s, from a growing total."""

    def __init__(self, windows: Sequence[float] = (10, 60, 300)):
        """Makes a counter without samples. `windows`: lengths in seconds; each rate covers the last so many
        seconds."""
        self._windows = tuple(windows)
        self._samples: collections.deque[tuple[float, float]] = collections.deque()

    def add(self, now: float, total: float) -> None:
        """Adds a sample of the growing total.

        now: time of the sample in seconds, from any origin; must never decrease. total: all events so far.
        """
        self._samples.append((now, total))
        # One sample older than the longest window stays, so that the window is covered to its start.
        while len(self._samples) > 2 and self._samples[1][0] <= now - max(self._windows):
            self._samples.popleft()

    def rates(self) -> dict[float, float]:
        """Returns events per second by window length; NaN with less than two samples.
        If the samples cover less than a window, the rate is over all samples."""
        if len(self._samples) < 2:
            return dict.fromkeys(self._windows, math.nan)
        now, total = self._samples[-1]
        rates = {}
        for seconds in self._windows:
            # The newest sample at or before the start of the window, else the oldest of all.
            covering = [sample for sample in self._samples if sample[0] <= now - seconds]
            then, total_then = covering[-1] if covering else self._samples[0]
            rates[seconds] = (total - total_then) / (now - then) if now > then else math.nan
        return rates
