"""Measures where time is spent, and events per second."""

import collections
import math
import time
from collections.abc import Callable, Sequence

Now = Callable[[], float]  # seconds; any origin


class Clock:
    """Splits a loop's time among names: `clock.lap("step")` adds the time since the last lap to "step".

    Promises: the totals add up to the time from the construction (or the last reset) to the last lap; a lap
    takes less than a microsecond.

    totals: seconds by name. counts: laps by name.
    """

    def __init__(self, now: Now = time.perf_counter):
        self._now = now
        self.reset()

    def reset(self) -> None:
        """Sets all totals to zero; the next lap starts now."""
        self.totals: dict[str, float] = collections.defaultdict(float)
        self.counts: dict[str, int] = collections.defaultdict(int)
        self._last = self._now()

    def lap(self, name: str) -> None:
        now = self._now()
        self.totals[name] += now - self._last
        self.counts[name] += 1
        self._last = now

    def take_shares(self) -> dict[str, float]:
        """Returns each name's fraction of the total time (they sum to 1; empty without laps), and resets."""
        whole = sum(self.totals.values())
        shares = {name: seconds / whole for name, seconds in self.totals.items() if whole > 0}
        last = self._last
        self.reset()
        self._last = last
        return shares

    def report(self) -> str:
        """Returns one line, the largest total first: `step 12.3 s (61%, 0.41 ms x 30000), wait 7.9 s ...`."""
        whole = sum(self.totals.values()) or math.nan
        names = sorted(self.totals, key=lambda name: self.totals[name], reverse=True)
        return ", ".join(
            f"{name} {self.totals[name]:.1f} s ({self.totals[name] / whole:.0%}, "
            f"{1000 * self.totals[name] / self.counts[name]:.2f} ms x {self.counts[name]})"
            for name in names
        )


class Every:
    """A timer: `if every():` is true once per `seconds`, counted from the last time it was.

    at_first: whether the first call returns True. seconds <= 0: never true.
    """

    def __init__(self, seconds: float, at_first: bool = False, now: Now = time.monotonic):
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
    """Computes events per second over the last seconds, from a growing total."""

    def __init__(self, windows: Sequence[float] = (10, 60, 300)):
        """windows: lengths of the averages, in seconds."""
        self._windows = tuple(windows)
        self._samples: collections.deque[tuple[float, float]] = collections.deque()

    def add(self, now: float, total: float) -> None:
        """Adds a sample. now: seconds, any origin, never decreasing. total: all events so far."""
        self._samples.append((now, total))
        # One sample older than the longest window stays, so that the window is covered to its start.
        while len(self._samples) > 2 and self._samples[1][0] <= now - max(self._windows):
            self._samples.popleft()

    def rates(self) -> dict[float, float]:
        """Returns the rate by window length: over all samples if they cover less, NaN below two samples."""
        return {seconds: self._rate(seconds) for seconds in self._windows}

    def _rate(self, seconds: float) -> float:
        if len(self._samples) < 2:
            return math.nan
        now, total = self._samples[-1]
        # The newest sample that covers the window, or else the oldest of all.
        covering = [sample for sample in self._samples if sample[0] <= now - seconds]
        then, total_then = covering[-1] if covering else self._samples[0]
        return (total - total_then) / (now - then) if now > then else math.nan
