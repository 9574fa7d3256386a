"""Shows how far a series of episodes or matches is, and how long the rest will take."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from sample_factory.monitoring.status_line import clock_text
from sample_factory.runtime.clock import Every
from sample_factory.runtime.terminal import columns_of

PROGRESS_SECONDS = 5.0  # between two lines where there is no terminal
BAR_SECONDS = 0.2
BAR_WIDTH = 20
CLEAR_LINE = "\r\x1b[K"


class Progress:
    """A bar that is rewritten in place on a terminal; elsewhere, a line every PROGRESS_SECONDS."""

    def __init__(self, total: int, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic):
        """total: number of episodes or matches. The time starts now. stream: None: stdout."""
        self._total = total
        self._stream = sys.stdout if stream is None else stream
        self._is_bar = self._stream.isatty()
        self._is_time = Every(BAR_SECONDS if self._is_bar else PROGRESS_SECONDS, now=now)
        self._now = now
        self._began = now()

    def update(self, done: int, describe: Callable[[], str] = str) -> None:
        """Shows that `done` have ended, if the last time was long enough ago. describe: called for the text
        about them."""
        if not self._is_time():
            return
        text = f"{done} of {self._total}{self._time_left(done)}   {describe()}".rstrip()
        if self._is_bar:
            filled = "#" * round(BAR_WIDTH * done / self._total)
            line = f"[{filled:.<{BAR_WIDTH}}] {text}"[: columns_of(self._stream) - 1]
            print(f"{CLEAR_LINE}{line}", end="", file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Removes the bar."""
        if self._is_bar:
            print(CLEAR_LINE, end="", file=self._stream, flush=True)

    def _time_left(self, done: int) -> str:
        if done == 0:
            return ""
        seconds = (self._now() - self._began) * (self._total - done) / done
        return f"   {clock_text(seconds)} left"
