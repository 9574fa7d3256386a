"""Runs the jobs of a grid to their end with a backend, and shows them: a live table on a terminal, lines
otherwise."""

import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from sample_factory.config.flags import NEVER
from sample_factory.monitoring.console import clock_text, short_count, short_number
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.plot_command import aligned
from sample_factory.runner.backend import Backend, CannotStart
from sample_factory.runner.run_job import ENDS, FAILED, FINISHED, QUEUED, RUNNING, STOPPED, WAITING, Job
from sample_factory.runtime.supervisor import StopSignals

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
POLL_SECONDS = 0.5


class Row:
    """One run in the table, and the latest figures of its policy 0.

    note: e.g. why it has failed. seconds: of all its attempts. figures: by tag; nan: not known.
    target: of --train_for_env_steps; None without a limit.
    """

    def __init__(self, folder: Path):
        self.name = folder.name
        self.state = WAITING
        self.note = ""
        self.seconds = 0.0
        self.figures = {FRAMES: 0.0, FPS: math.nan, REWARD: math.nan}
        self.target: int | None = None
        self.env = ""
        self._folder = folder
        self._loaders: dict[Path, Any] = {}

    def read(self) -> None:
        """Updates the figures from what the run has written since the last call."""
        # Not at the top of the module: it takes 0.2 s, which an error about a flag should not.
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        for file in sorted(self._folder.glob(EVENT_FILES)):  # a name has the time of its start
            if file not in self._loaders:
                self._loaders[file] = LegacyEventFileLoader(str(file))
            for event in self._loaders[file].Load():
                scalars = {scalar.tag: scalar.simple_value for scalar in event.summary.value}
                self.figures |= {tag: scalars[tag] for tag in self.figures if tag in scalars}
        settings = self._folder / "cfg.json"
        if not self.env and settings.exists():
            flags = json.loads(settings.read_text())
            self.env = str(flags.get("env", ""))
            target = int(flags.get("train_for_env_steps", NEVER))
            self.target = None if target >= NEVER else target

    def cells(self) -> tuple[str, ...]:
        """Returns the texts under HEADING."""
        frames, fps, reward = self.figures.values()
        return (
            self.name if len(self.name) <= MAX_NAME else f"{self.name[: MAX_NAME - 3]}...",
            self.state,
            short_count(frames) if frames else "",
            short_count(self.target) if self.target else "",
            "" if math.isnan(fps) else f"{fps:,.0f}",
            "" if math.isnan(reward) else short_number(reward),
            clock_text(self.seconds) if self.seconds else "",
        )

    def sentence(self) -> str:
        """Returns e.g. "03_a_see_1: finished, 20k frames, reward 12.3"."""
        _, _, frames, _, _, reward, _ = self.cells()
        words = [self.state, self.note, frames and f"{frames} frames", reward and f"reward {reward}"]
        return f"{self.name}: {', '.join(filter(None, words))}"


class Board:
    """Shows the rows of all runs as they change."""

    def __init__(self, rows: Sequence[Row], stream: TextIO = sys.stdout):
        self._rows = rows
        self._stream = stream
        self._is_live = stream.isatty()
        self._num_drawn = 0
        self._drawn_at = -LINE_SECONDS
        self._states: dict[str, str] = {}

    def show(self) -> None:
        """Draws the table again; elsewhere than on a terminal, prints a line for each change of a state, and
        from time to time one for each run."""
        if not self._is_live:
            for row in self._rows:
                if row.state != QUEUED and self._states.get(row.name, WAITING) != row.state:
                    self._states[row.name] = row.state
                    self.print(row.sentence())
        running = [row for row in self._rows if row.state == RUNNING]
        now = time.monotonic()
        is_due = now - self._drawn_at >= (DRAW_SECONDS if self._is_live else LINE_SECONDS)
        if is_due and (self._is_live or running):
            self._drawn_at = now
            if self._is_live:
                self._draw()
            else:
                known = [row.sentence() for row in running if row.figures[FRAMES]]
                self.print("\n".join([*known, self.counts()]))

    def print(self, text: str) -> None:
        """Prints lines above the table."""
        if self._num_drawn:
            self._stream.write(f"\x1b[{self._num_drawn}F\x1b[J")  # cursor up, then erase what is below it
            self._num_drawn = 0
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Replaces the live table by one of all runs."""
        self.print("\n".join(self.lines(self._rows)))

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        shown = self._rows
        room = max(1, size.lines - MARGIN)
        if len(shown) > room:
            shown = sorted(shown, key=lambda row: ORDER.index(row.state))[:room]
        lines = self.lines(shown)
        self.print("\n".join(line[: size.columns - 1] for line in lines))
        self._num_drawn = len(lines)

    def lines(self, shown: Sequence[Row]) -> list[str]:
        """Returns a heading, a line for each of these runs, and the counts of all."""
        return [*aligned([HEADING, *(row.cells() for row in shown)], SIDES), self.counts()]

    def counts(self) -> str:
        """Returns e.g. "12 runs: 3 running, 9 finished"."""
        found = Counter(row.state for row in self._rows)
        counts = [f"{found[state]} {state}" for state in ORDER if found[state]]
        return f"{len(self._rows)} runs: {', '.join(counts)}"


class Grid:
    """All jobs and where each of them is: waiting, with the backend, or ended.

    rows: of all jobs, in the order in which they were added. row_of: the same by name. board: shows them.
    """

    def __init__(self, jobs: Sequence[Job], backend: Backend, pause: float):
        """pause: seconds between two starts."""
        self.rows: list[Row] = []
        self.row_of: dict[str, Row] = {}
        self.board = Board(self.rows)
        self._backend = backend
        self._pause = pause
        self._jobs = jobs
        self._waiting: list[Job] = []
        self._active: dict[str, Job] = {}  # with the backend
        self._cancelled: set[str] = set()  # names
        self._last_start = -pause

    @property
    def num_unfinished(self) -> int:
        """Number of jobs that wait or are with the backend."""
        return len(self._waiting) + len(self._active)

    def run(self, more: Callable[[], Sequence[Job]] = tuple) -> bool:
        """Returns whether all jobs have ended: not if a signal has stopped the grid.

        more: called several times a second; returns jobs to add. The grid ends when there are none.
        """
        self._add(self._jobs)
        self._report_resumed()
        with StopSignals(lambda: "Runs that were still saving may have lost their last minutes.") as signals:
            while self._add(more()) or self.num_unfinished:
                if signals.requested is not None:
                    self._stop()
                    break
                self._start_next()
                self._follow()
                time.sleep(POLL_SECONDS)
        return signals.requested is None

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Asks jobs to save and stop, and discards those that wait; does nothing about those that have ended.
        Returns at once."""
        names = {job.name for job in jobs}
        for job in [job for job in self._waiting if job.name in names]:
            self._waiting.remove(job)
            self._set(job, STOPPED)
        active = names & self._active.keys()
        self._cancelled |= active
        if active:
            self._backend.stop(active)

    def _add(self, jobs: Sequence[Job]) -> bool:
        """Skips finished jobs, adopts those that still run, lets the others wait; returns whether there are
        any."""
        for job in jobs:
            self.row_of[job.name] = Row(job.folder)
            self.rows.append(self.row_of[job.name])
            if job.is_finished():
                self._set(job, FINISHED, "in an earlier start")
            elif self._backend.adopt(job):
                self._active[job.name] = job
                self._set(job, QUEUED)
            else:
                self._waiting.append(job)
        return bool(jobs)

    def _report_resumed(self) -> None:
        """Prints what has been done by an earlier start, if anything."""
        resumed = sum(job.read_state() is not None for job in self._waiting)
        if len(self._waiting) < len(self._jobs) or resumed:
            skipped = len(self._jobs) - len(self._waiting) - len(self._active)
            self.board.print(
                f"{skipped} finished by an earlier start are skipped, {len(self._active)} are still in the "
                f"queue, {resumed} were begun and are resumed, {len(self._waiting) - resumed} are new"
            )

    def _start_next(self) -> None:
        """Starts the next job if there is room and the pause since the last start is over."""
        is_too_early = time.monotonic() - self._last_start < self._pause
        if not self._waiting or is_too_early or not self._backend.has_room():
            return
        job = self._waiting.pop(0)
        self._last_start = time.monotonic()
        job.write_order()
        try:
            self._backend.start(job)
        except CannotStart as error:
            self._set(job, FAILED, str(error))
        else:
            self._active[job.name] = job
            self._set(job, QUEUED)

    def _follow(self) -> None:
        """Updates the rows of the active jobs."""
        alive = set(self._backend.unfinished())  # before the states: a job writes its last one, then ends
        for job in list(self._active.values()):
            state = job.read_current()
            if state is not None and state.state in ENDS:
                # A stopped job that is alive has been queued again by its own script.
                if job.name not in alive or state.state != STOPPED:
                    self._set(job, state.state, state.reason)
            elif job.name not in alive:
                reason = "its process has died" if state else "it has not been started"
                self._set(job, *((STOPPED,) if job.name in self._cancelled else (FAILED, reason)))
            else:
                self._set(job, RUNNING if state is not None else QUEUED)
        self.board.show()

    def _stop(self) -> None:
        """Asks all jobs to stop and waits for them; a backend that outlives the runner keeps them."""
        if self._backend.outlives_runner:
            self.board.print("Stopped watching: the jobs stay in the queue; the same command follows them")
            return
        self.board.print(f"Stopping {len(self._active)} runs; they save first ...")
        self._waiting.clear()
        self._backend.stop(self._active)
        while self._active:
            for name in self._active.keys() - set(self._backend.unfinished()):
                state = self._active[name].read_current()
                ended = STOPPED if state is None or state.state == RUNNING else state.state
                self._set(self._active[name], ended)
            self.board.show()
            time.sleep(POLL_SECONDS)

    def _set(self, job: Job, state: str, note: str = "") -> None:
        """Updates the row of a job; one that has ended is no longer active."""
        row = self.row_of[job.name]
        row.state = state
        row.note = note
        if state in (RUNNING, *ENDS):
            row.read()
        if state in ENDS:
            self._active.pop(job.name, None)
            row.figures[FPS] = math.nan
        last = job.read_state()
        if last is not None:
            row.seconds = last.seconds + (time.time() - last.began if last.state == RUNNING else 0.0)
