"""Shows the runs of a grid: a live table on a terminal, lines otherwise."""

import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from sample_factory.config.flags import NEVER
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.monitoring.status_line import clock_text, short_count, short_number
from sample_factory.plotting.plot_command import aligned
from sample_factory.runner.run_job import FAILED, FINISHED, QUEUED, RUNNING, STOPPED, WAITING

FRAMES = "0_aux/env_frames"
FPS = "0_aux/_fps"
REWARD = TAGS["reward"]
EVENT_FILES = ".summary/0/*tfevents*"
ORDER = (RUNNING, FAILED, STOPPED, QUEUED, WAITING, FINISHED)  # where the table has no room for all
HEADING = ("run", "state", "frames", "of", "FPS", "reward", "time")
SIDES = "<<>>>>>"
MAX_NAME = 48  # characters
DRAW_SECONDS = 1.0
LINE_SECONDS = 60.0  # between two lines about running jobs where the output is no terminal
MARGIN = 3  # rows of the terminal: heading, counts, cursor


class Progress(NamedTuple):
    """The latest figures of a run, of policy 0. reward: mean of the last episodes. nan: not known.

    target: of --train_for_env_steps; None without a limit.
    """

    env_frames: int = 0
    target: int | None = None
    fps: float = math.nan
    reward: float = math.nan
    env: str = ""


class ProgressReader:
    """Follows the experiment in a folder; reads only what was added since the last call."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._loaders: dict[Path, Any] = {}
        self._latest: dict[str, float] = {}
        self._flags: dict[str, Any] = {}

    def read(self) -> Progress:
        for file in sorted(self._folder.glob(EVENT_FILES)):  # a name has the time of its start
            self._read_events(file)
        settings = self._folder / "cfg.json"
        if not self._flags and settings.exists():
            self._flags = json.loads(settings.read_text())
        target = int(self._flags.get("train_for_env_steps", NEVER))
        return Progress(
            int(self._latest.get(FRAMES, 0)),
            None if target >= NEVER else target,
            self._latest.get(FPS, math.nan),
            self._latest.get(REWARD, math.nan),
            str(self._flags.get("env", "")),
        )

    def _read_events(self, file: Path) -> None:
        # Not at the top of the module: it takes 0.2 s, which an error about a flag should not.
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        if file not in self._loaders:
            self._loaders[file] = LegacyEventFileLoader(str(file))
        for event in self._loaders[file].Load():
            for scalar in event.summary.value:
                if scalar.tag in (FRAMES, FPS, REWARD):
                    self._latest[scalar.tag] = scalar.simple_value


class Row(NamedTuple):
    """One run in the table. seconds: of all its attempts. note: e.g. why it has failed."""

    name: str
    state: str
    progress: Progress = Progress()
    seconds: float = 0.0
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        progress = self.progress
        return (
            self.name if len(self.name) <= MAX_NAME else f"{self.name[: MAX_NAME - 3]}...",
            self.state,
            short_count(progress.env_frames) if progress.env_frames else "",
            short_count(progress.target) if progress.target else "",
            "" if math.isnan(progress.fps) else f"{progress.fps:,.0f}",
            "" if math.isnan(progress.reward) else short_number(progress.reward),
            clock_text(self.seconds) if self.seconds else "",
        )

    def sentence(self) -> str:
        """Returns e.g. "03_a_see_1: finished, 20k frames, reward 12.3"."""
        frames = f"{short_count(self.progress.env_frames)} frames" if self.progress.env_frames else ""
        reward = "" if math.isnan(self.progress.reward) else f"reward {short_number(self.progress.reward)}"
        return f"{self.name}: " + ", ".join(filter(None, [self.state, self.note, frames, reward]))


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
        is_due = now - self._drawn_at >= (DRAW_SECONDS if self._is_live else LINE_SECONDS)
        running = [row for row in rows if row.state == RUNNING]
        if not self._is_live:
            for row in rows:
                if row.state != QUEUED and self._states.get(row.name, WAITING) != row.state:
                    self._states[row.name] = row.state
                    self.print(row.sentence())
        if not is_due or not (self._is_live or running):
            return
        self._drawn_at = now
        if self._is_live:
            self._draw(rows)
        else:
            known = [row.sentence() for row in running if row.progress.env_frames]
            self.print("\n".join([*known, counts(rows)]))

    def print(self, text: str) -> None:
        """Prints lines above the table."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def close(self, rows: Sequence[Row]) -> None:
        """Replaces the live table by that of all runs."""
        self.print("\n".join([*table(rows), counts(rows)]))

    def _draw(self, rows: Sequence[Row]) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines - MARGIN)
        first = sorted(rows, key=lambda row: ORDER.index(row.state)) if len(rows) > room else rows
        lines = [*table(first[:room]), counts(rows)]
        self.print("\n".join(line[: size.columns - 1] for line in lines))
        self._num_drawn = len(lines)

    def _clear(self) -> None:
        if self._num_drawn:
            self._stream.write(f"\x1b[{self._num_drawn}F\x1b[J")  # cursor up, then erase what is below it
            self._num_drawn = 0


def table(rows: Sequence[Row]) -> list[str]:
    """Returns a heading, and a line for each run."""
    return aligned([HEADING, *(row.cells() for row in rows)], SIDES)


def counts(rows: Sequence[Row]) -> str:
    """Returns e.g. "12 runs: 3 running, 9 finished"."""
    found = Counter(row.state for row in rows)
    return f"{len(rows)} runs: " + ", ".join(f"{found[state]} {state}" for state in ORDER if found[state])
