"""Shows the runs of a grid: a live table on a terminal, lines otherwise."""

import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from sample_factory.monitoring.status_line import clock_text, short_count, short_number
from sample_factory.plotting.plot_command import aligned
from sample_factory.runner.jobs import FAILED, FINISHED, QUEUED, RUNNING, STOPPED, WAITING
from sample_factory.runner.progress import Progress

ORDER = (RUNNING, FAILED, STOPPED, QUEUED, WAITING, FINISHED)  # where the table has no room for all
HEADING = ("run", "state", "frames", "of", "FPS", "reward", "time")
SIDES = "<<>>>>>"
MAX_NAME = 48  # characters
DRAW_SECONDS = 1.0
LINE_SECONDS = 60.0  # between two lines about running jobs where the output is no terminal
MARGIN = 3  # rows of the terminal: heading, counts, cursor


class Row(NamedTuple):
    """One run in the table. seconds: of all its attempts. note: e.g. why it has failed."""

    name: str
    state: str
    progress: Progress = Progress()
    seconds: float = 0.0
    note: str = ""


class Board:
    """Shows the rows of all runs as they change."""

    def __init__(self, stream: TextIO = sys.stdout):
        self._stream = stream
        self._is_live = stream.isatty()
        self._num_drawn = 0
        self._drawn_at = -LINE_SECONDS
        self._states: dict[str, str] = {}

    def show(self, rows: Sequence[Row]) -> None:
        """Draws the table again, or prints a line for each run whose state has changed."""
        now = time.monotonic()
        if self._is_live:
            if now - self._drawn_at >= DRAW_SECONDS:
                self._drawn_at = now
                self._draw(rows)
            return
        for row in rows:
            if row.state != QUEUED and self._states.get(row.name, WAITING) != row.state:
                self._states[row.name] = row.state
                self.print(_sentence(row))
        if now - self._drawn_at >= LINE_SECONDS and any(row.state == RUNNING for row in rows):
            self._drawn_at = now
            for row in rows:
                if row.state == RUNNING and row.progress.env_frames:
                    self.print(_sentence(row))
            self.print(counts(rows))

    def print(self, line: str) -> None:
        """Prints a line above the table."""
        self._clear()
        print(line, file=self._stream, flush=True)

    def close(self, rows: Sequence[Row]) -> None:
        """Replaces the live table by that of all runs."""
        self._clear()
        print("\n".join([*table(rows), counts(rows)]), file=self._stream, flush=True)

    def _draw(self, rows: Sequence[Row]) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines - MARGIN)
        first = sorted(rows, key=lambda row: ORDER.index(row.state)) if len(rows) > room else rows
        lines = [*table(first[:room]), counts(rows)]
        self._clear()
        self._num_drawn = len(lines)
        print("\n".join(line[: size.columns - 1] for line in lines), file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._num_drawn:
            self._stream.write(f"\x1b[{self._num_drawn}F\x1b[J")  # cursor up, then erase what is below it
            self._num_drawn = 0


def table(rows: Sequence[Row]) -> list[str]:
    """Returns a heading, and a line for each run."""
    return aligned([HEADING, *map(_cells, rows)], SIDES)


def counts(rows: Sequence[Row]) -> str:
    """Returns e.g. "12 runs: 3 running, 9 finished"."""
    found = Counter(row.state for row in rows)
    return f"{len(rows)} runs: " + ", ".join(f"{found[state]} {state}" for state in ORDER if found[state])


def _cells(row: Row) -> tuple[str, ...]:
    progress = row.progress
    return (
        row.name if len(row.name) <= MAX_NAME else f"{row.name[: MAX_NAME - 3]}...",
        row.state,
        short_count(progress.env_frames) if progress.env_frames else "",
        short_count(progress.target) if progress.target else "",
        "" if math.isnan(progress.fps) else f"{progress.fps:,.0f}",
        "" if math.isnan(progress.reward) else short_number(progress.reward),
        clock_text(row.seconds) if row.seconds else "",
    )


def _sentence(row: Row) -> str:
    """Returns e.g. "03_a_see_1: finished, 20k frames, reward 12.3"."""
    frames = f"{short_count(row.progress.env_frames)} frames" if row.progress.env_frames else ""
    reward = "" if math.isnan(row.progress.reward) else f"reward {short_number(row.progress.reward)}"
    return f"{row.name}: " + ", ".join(filter(None, [row.state, row.note, frames, reward]))
