"""Runs the jobs of a grid to their end with a backend, and shows their progress."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TextIO

from sample_factory.config.experiment_folder import read_json
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.monitoring.console import aligned, clock_text, short_count, short_number
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.metrics import EventFile
from sample_factory.runner.backend import Backend, CannotStart
from sample_factory.runner.run_job import ENDS, FAILED, FINISHED, QUEUED, RUNNING, STOPPED, WAITING, Job
from sample_factory.runtime.clock import Every, Now
from sample_factory.runtime.supervisor import StopSignals

FRAMES = "0_aux/env_frames"
FPS = "0_aux/_fps"
REWARD = TAGS["reward"]
EVENT_FILES = ".summary/0/*tfevents*"
ACTIVE = (QUEUED, RUNNING)  # with the backend
ORDER = (RUNNING, FAILED, STOPPED, QUEUED, WAITING, FINISHED)  # of the counts
HEADING = ("run", "state", "frames", "of", "FPS", "reward", "time")
SIDES = "<<>>>>>"
MAX_NAME = 48  # characters
TABLE_SECONDS = 60.0  # between two tables of the running jobs
POLL_SECONDS = 0.5


class Row:
    """Keeps the state of a job and its latest figures, for a row of the printed table.

    note: text beside the state, e.g. why the job has failed. is_cancelled: whether the job was asked to stop.
    seconds: duration of all attempts of the job. figures: TensorBoard tag -> latest value of policy 0; nan if
    not known. target: value of --train_for_env_steps; None without a limit.
    """

    def __init__(self, job: Job):
        self.job = job
        self.state = WAITING
        self.note = ""
        self.is_cancelled = False
        self.seconds = 0.0
        self.figures = {FRAMES: 0.0, FPS: math.nan, REWARD: math.nan}
        self.target: int | None = None
        self.env = ""
        self._loaders: dict[Path, EventFile] = {}

    def change(self, state: str, note: str = "") -> None:
        """Sets the state and the note of the row, and updates `figures` and `seconds` from the job's
        files."""
        self.state = state
        self.note = note
        if state in (RUNNING, *ENDS):
            self.read()
        if state in ENDS:
            self.figures[FPS] = math.nan
        last = self.job.read_state()
        if last is not None:
            self.seconds = last.seconds + (time.time() - last.began if last.state == RUNNING else 0.0)

    def read(self) -> None:
        """Updates the figures from the event files that the run has written since the last call."""
        try:
            self._read_files()
        except (TypeError, ValueError) as error:  # of a damaged file: no reason to end the other runs
            self.note = self.note or str(error)

    def _read_files(self) -> None:
        for file in sorted(self.job.folder.glob(EVENT_FILES)):  # a name has the time of its start
            if file not in self._loaders:
                self._loaders[file] = EventFile(file)
            for event in self._loaders[file].new_events():
                scalars = {scalar.tag: scalar.simple_value for scalar in event.summary.value}
                self.figures |= {tag: scalars[tag] for tag in self.figures if tag in scalars}
        settings = self.job.folder / "cfg.json"
        if not self.env and settings.exists():
            flags = read_json(settings)
            self.env = str(flags.get("env", ""))
            target = int(flags.get("train_for_env_steps", NEVER))
            self.target = None if target >= NEVER else target

    def cells(self) -> tuple[str, ...]:
        """Returns the texts of the row, a cell for each column of HEADING."""
        frames, fps, reward = self.figures.values()
        name = self.job.name
        return (
            name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 3]}...",
            self.state,
            short_count(frames) if frames else "",
            short_count(self.target) if self.target else "",
            "" if math.isnan(fps) else f"{fps:,.0f}",
            "" if math.isnan(reward) else short_number(reward),
            clock_text(self.seconds) if self.seconds else "",
        )

    def sentence(self) -> str:
        """Returns the progress in one line, e.g. "03_a_see_1: finished, 20k frames, reward 12.3"."""
        _, _, frames, _, _, reward, _ = self.cells()
        words = [self.state, self.note, frames and f"{frames} frames", reward and f"reward {reward}"]
        return f"{self.job.name}: {', '.join(filter(None, words))}"


class Board:
    """Prints each change of a run's state, and every TABLE_SECONDS a table of the running runs."""

    def __init__(self, rows: Sequence[Row], stream: TextIO = sys.stdout, now: Now = time.monotonic):
        self._rows = rows
        self._stream = stream
        self._is_due = Every(TABLE_SECONDS, now=now)
        self._states: dict[str, str] = {}

    def show(self) -> None:
        """Prints the changes of state since the last call, and the table if TABLE_SECONDS are over."""
        for row in self._rows:
            if row.state != QUEUED and self._states.get(row.job.name, WAITING) != row.state:
                self._states[row.job.name] = row.state
                self.print(row.sentence())
        running = [row for row in self._rows if row.state == RUNNING]
        if running and self._is_due():
            self.print("\n".join(self.lines(running)))

    def print(self, text: str) -> None:
        """Prints a text to the stream of the board (stdout by default), at once."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Prints the table of all runs."""
        self.print("\n".join(self.lines(self._rows)))

    def lines(self, shown: Sequence[Row]) -> list[str]:
        """Returns the lines of a table: a heading, these rows, and the counts of all runs."""
        return [*aligned([HEADING, *(row.cells() for row in shown)], SIDES), self.counts()]

    def counts(self) -> str:
        """Returns the number of runs in each state, e.g. "12 runs: 3 running, 9 finished"."""
        found = Counter(row.state for row in self._rows)
        counts = [f"{found[state]} {state}" for state in ORDER if found[state]]
        return f"{len(self._rows)} runs: {', '.join(counts)}"


class Grid:
    """Runs jobs on a backend and prints their progress.

    rows: a Row for each job, in the order in which the jobs were added.
    board: prints the rows.
    """

    def __init__(self, backend: Backend, pause: float):
        """Makes a grid without jobs. pause: least number of seconds between the starts of two jobs."""
        self.rows: list[Row] = []
        self.board = Board(self.rows)
        self._backend = backend
        self._pause = pause
        self._last_start = -pause

    @property
    def num_unfinished(self) -> int:
        """Returns the number of jobs that have not ended: waiting, queued or running."""
        return sum(row.state not in ENDS for row in self.rows)

    @property
    def _active(self) -> list[Row]:
        return [row for row in self.rows if row.state in ACTIVE]

    def run(self, rows: Sequence[Row], more: Callable[[], Sequence[Row]] = tuple) -> bool:
        """Runs the jobs of these rows to their end. Returns False if a signal has stopped the grid.

        more: called every POLL_SECONDS; returns rows to add. The grid ends when all jobs have ended and
            `more` returns no rows.
        """
        self._add(rows)
        self._report_resumed()
        with StopSignals(lambda: "Runs that were still saving may have lost their last minutes.") as signals:
            while self._add(more()) or self.num_unfinished:
                if signals.requested is not None:
                    self._stop()
                    break
                while signals.requested is None and self._start_next():
                    pass
                self._follow()
                time.sleep(POLL_SECONDS)
        return signals.requested is None

    def cancel(self, rows: Collection[Row]) -> None:
        """Asks running jobs to save and stop, and drops waiting jobs. Ignores ended jobs. Returns at once."""
        active = [row for row in rows if row.state in ACTIVE]
        for row in rows:
            row.is_cancelled = True
            if row.state == WAITING:
                row.change(STOPPED)
        if active:
            self._backend.stop([row.job.name for row in active])

    def _add(self, rows: Sequence[Row]) -> bool:
        """Adds rows to the grid; returns whether `rows` is not empty.

        A job that has finished earlier is not run again; a job that an earlier runner has left queued or
        running is adopted; any other job waits for its start.
        """
        for row in rows:
            self.rows.append(row)
            if row.job.is_finished():
                row.change(FINISHED, "in an earlier start")
            elif self._backend.adopt(row.job):
                row.change(QUEUED)
        return bool(rows)

    def _report_resumed(self) -> None:
        """Prints how many jobs an earlier runner has finished or begun; nothing if all jobs are new."""
        waiting = [row for row in self.rows if row.state == WAITING]
        states = [state for row in waiting if (state := row.job.read_state()) is not None]
        resumed = len(states)
        for damage in (state.reason for state in states if state.attempt == 0):
            self.board.print(f"a run starts again: {damage}")
        if len(waiting) < len(self.rows) or resumed:
            skipped = len(self.rows) - self.num_unfinished
            self.board.print(
                f"{skipped} finished by an earlier start are skipped, {len(self._active)} are still in the "
                f"queue, {resumed} were begun and are resumed, {len(waiting) - resumed} are new"
            )

    def _start_next(self) -> bool:
        """Starts the next job if there is room and the pause since the last start is over. Returns False if
        there is nothing to start now."""
        row = next((row for row in self.rows if row.state == WAITING), None)
        is_too_early = time.monotonic() - self._last_start < self._pause
        if row is None or is_too_early or not self._backend.has_room():
            return False
        self._last_start = time.monotonic()
        try:
            row.job.write_order()
            self._backend.start(row.job)
        except (CannotStart, ConfigError) as error:
            row.change(FAILED, str(error))
        else:
            row.change(QUEUED)
        return True

    def _follow(self) -> None:
        """Updates the rows of queued and running jobs, also of those that have just ended; prints changes."""
        alive = set(self._backend.unfinished())  # before the states: a job writes its last one, then ends
        for row in self._active:
            state = row.job.read_current()
            if state is not None and state.state in ENDS:
                # A stopped job that is alive has been queued again by its own script.
                if row.job.name not in alive or state.state != STOPPED:
                    row.change(state.state, state.reason)
            elif row.job.name in alive:
                row.change(RUNNING if state is not None else QUEUED)
            elif row.is_cancelled:
                row.change(STOPPED)
            else:
                row.change(FAILED, "its process has died" if state else "it has not been started")
        self.board.show()

    def _stop(self) -> None:
        """Stops all jobs and waits for their ends; leaves them running if the backend outlives the runner."""
        if self._backend.outlives_runner:
            self.board.print("Stopped watching: the jobs stay in the queue; the same command follows them")
            return
        self.board.print(f"Stopping {len(self._active)} runs; they save first ...")
        self._backend.stop([row.job.name for row in self._active])
        while active := self._active:
            alive = set(self._backend.unfinished())
            for row in [row for row in active if row.job.name not in alive]:
                state = row.job.read_current()
                row.change(STOPPED if state is None or state.state == RUNNING else state.state)
            self.board.show()
            time.sleep(POLL_SECONDS)
