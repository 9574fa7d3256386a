"""Runs the jobs of a grid to their end with a backend."""

import select
import time
from collections.abc import Sequence

from sample_factory.runner.backend import Backend, CannotStart
from sample_factory.runner.board import Board, Progress, ProgressReader, Row
from sample_factory.runner.run_job import ENDS, FAILED, FINISHED, QUEUED, RUNNING, STOPPED, WAITING, Job
from sample_factory.runtime.supervisor import StopSignals

POLL_SECONDS = 0.5


class Grid:
    """All jobs and where each of them is: waiting, with the backend, or ended."""

    def __init__(self, jobs: Sequence[Job], backend: Backend, board: Board, pause: float):
        """pause: seconds between two starts."""
        self._backend = backend
        self._board = board
        self._pause = pause
        self._jobs = {job.name: job for job in jobs}
        self._readers = {job.name: ProgressReader(job.folder) for job in jobs}
        self._rows = {job.name: Row(job.name, WAITING) for job in jobs}
        self._waiting: list[Job] = []
        self._active: dict[str, Job] = {}  # with the backend
        self._last_start = -pause

    @property
    def rows(self) -> list[Row]:
        """A row for each job, in the order of the grid."""
        return list(self._rows.values())

    def run(self) -> bool:
        """Returns whether all jobs have ended: not if a signal has stopped the grid."""
        self._sort_out()
        with StopSignals(lambda: "Runs that were still saving may have lost their last minutes.") as signals:
            while self._waiting or self._active:
                if signals.requested is not None:
                    self._stop()
                    break
                self._start_next()
                self._follow()
                select.select([signals], [], [], POLL_SECONDS)  # a signal ends the wait
        return signals.requested is None

    def _sort_out(self) -> None:
        """Skips finished jobs, adopts those that still run, and lets the others wait."""
        resumed = 0
        for job in self._jobs.values():
            if job.is_finished():
                self._set(job, FINISHED, "in an earlier start")
            elif self._backend.adopt(job):
                self._active[job.name] = job
                self._set(job, QUEUED)
            else:
                resumed += job.read_state() is not None
                self._waiting.append(job)
        if len(self._waiting) < len(self._jobs) or resumed:
            skipped = len(self._jobs) - len(self._waiting) - len(self._active)
            self._board.print(
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
                self._set(job, FAILED, "its process has died" if state else "it has not been started")
            else:
                self._set(job, RUNNING if state is not None else QUEUED)
        self._board.show(self.rows)

    def _stop(self) -> None:
        """Asks all jobs to stop and waits for them; a backend that outlives the runner keeps them."""
        if self._backend.outlives_runner:
            self._board.print("Stopped watching: the jobs stay in the queue; the same command follows them")
            return
        self._board.print(f"Stopping {len(self._active)} runs; they save first ...")
        self._waiting.clear()
        self._backend.stop()
        while self._active:
            for name in self._active.keys() - set(self._backend.unfinished()):
                state = self._active[name].read_current()
                ended = STOPPED if state is None or state.state == RUNNING else state.state
                self._set(self._active[name], ended)
            self._board.show(self.rows)
            time.sleep(POLL_SECONDS)

    def _set(self, job: Job, state: str, note: str = "") -> None:
        """Updates the row of a job; one that has ended is no longer active."""
        progress = self._rows[job.name].progress
        if state in (RUNNING, *ENDS):
            progress = self._readers[job.name].read()
        if state in ENDS:
            self._active.pop(job.name, None)
            progress = progress._replace(fps=Progress().fps)
        last = job.read_state()
        seconds = 0.0 if last is None else last.seconds  # of all attempts
        if last is not None and last.state == RUNNING:
            seconds += time.time() - last.began
        self._rows[job.name] = Row(job.name, state, progress, seconds, note)
