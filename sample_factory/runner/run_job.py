"""One run of a grid as a job: its files, and the process around it.

The runner writes the order (what to run). The process `python -m sample_factory.runner.run_job ORDER_FILE`,
which every backend starts on the machine where the run is to be, writes the state. It promises:

1. The output of the command is appended to the log of the job, its result is in the state file.
2. SIGTERM, SIGINT and SIGHUP are forwarded as SIGTERM: a training run saves and stops.
3. If this process dies, the command gets SIGTERM; so does this process if its backend dies, see Program.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.experiment_folder import (
    RESULT_FILE,
    RESULT_WITHOUT_FOLDER,
    read_json,
    write_atomically,
)
from sample_factory.config.flags import ConfigError
from sample_factory.runtime.programs import Program
from sample_factory.runtime.safe_files import open_file

FOLDER = "runner"  # in the folder of the grid: orders, states and logs

WAITING = "waiting"  # for its start
QUEUED = "queued"  # handed to the backend, which has not started it yet
RUNNING = "running"
FINISHED = "finished"
STOPPED = "stopped"  # by a signal; the next start resumes it
FAILED = "failed"
ENDS = (FINISHED, STOPPED, FAILED)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PYTHON = ("python", "python3")


class JobState(NamedTuple):
    """Describes the progress of a job, as stored in its state file.

    attempt: number of the last attempt that has begun, from 1.
    command: the words of the command.
    state: RUNNING, FINISHED, STOPPED or FAILED.
    reason: why the job failed, in one line.
    exit_code: exit code of the command; minus the number of a signal that ended it.
    began: start of the attempt, in seconds since 1970.
    seconds: duration of all ended attempts.
    host, pid: machine and process id of the command.
    """

    attempt: int
    command: list[str]
    state: str
    reason: str = ""
    exit_code: int | None = None
    began: float = 0.0
    seconds: float = 0.0
    host: str = ""
    pid: int = 0

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(self._asdict(), indent=1))

    @staticmethod
    def of_values(values: Mapping[str, Any], path: Path) -> "JobState":
        """Converts the contents of a state file to a JobState. `path`: the file, for messages.
        Raises ConfigError if names or types of the values are not those of a JobState."""
        try:
            state = JobState(**values)
            float(state.attempt + state.began + state.seconds)
            "".join([state.state, state.reason])
        except TypeError:  # other names or types
            raise ConfigError(f"{path} is not a state that the runner has written") from None
        return state


class Job(NamedTuple):
    """Describes a run of the grid, and the next attempt to run it.

    command: the words of the command; "python" as the first word means the interpreter that runs the job.
    folder: folder of the experiment, within a folder for all runs of one Experiment.
    files: folder of the runner's files.
    env_vars: environment variables to add.
    params: the run's parameters, which are part of `command` too.
    cwd: working directory of the command.
    attempt: number of the attempt, from 1.
    """

    command: Sequence[str]
    folder: Path
    files: Path
    env_vars: Mapping[str, str]
    params: Mapping[str, Any] = {}
    cwd: str = "."
    attempt: int = 0

    @staticmethod
    def read(order: Path) -> "Job":
        """Reads a file that `write_order` wrote. Raises ConfigError if the file is damaged."""
        values = read_json(order)
        try:
            job = Job(**{**values, "folder": Path(values["folder"]), "files": order.parent})
            return job._replace(attempt=int(job.attempt))
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{order} is not an order of the runner; delete it") from None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        """Returns the path of the file for the output of the command."""
        return self.files / f"{self.name}.log"

    @property
    def order(self) -> Path:
        return self.files / f"{self.name}.order.json"

    @property
    def state(self) -> Path:
        return self.files / f"{self.name}.state.json"

    @property
    def result(self) -> Path:
        """Returns the path of the file for the result of a training that leaves no experiment folder."""
        return self.files / f"{self.name}.result.json"

    def read_result(self) -> Mapping[str, Any]:
        """Returns the result that the last attempt has written; empty if the attempt has not ended, or the
        command is not `train`."""
        return _read(self.result) or _read(self.folder / RESULT_FILE) or {}

    def read_state(self) -> JobState | None:
        """Returns the state of the last attempt that has begun; None if no attempt has begun.
        For a damaged file, returns a state FAILED of attempt 0, with the reason: the run is started again."""
        try:
            values = _read(self.state)
            return None if values is None else JobState.of_values(values, self.state)
        except ConfigError as error:
            return JobState(0, [], FAILED, str(error))

    def read_current(self) -> JobState | None:
        """Returns the state of the attempt in the order file; None if that attempt has not begun."""
        state = self.read_state()
        return state if state and state.attempt == self._last_attempt() else None

    def is_finished(self) -> bool:
        """Returns whether the last attempt has finished with exactly this command."""
        state = self.read_state()
        return state is not None and (state.state, state.command) == (FINISHED, list(self.command))

    def last_line(self) -> str:
        """Returns the last line of the command's output that is not blank; empty if there is none."""
        if not self.log.exists():
            return ""
        with open_file(self.log, errors="replace") as log:
            output = log.read().split("\n")
        return next((line.strip() for line in reversed(output) if line.strip()), "")

    def write_order(self) -> None:
        """Writes the order file, from which the process of a job reads what to run, for the next
        attempt. Raises ConfigError if the present file is damaged."""
        self.files.mkdir(parents=True, exist_ok=True)
        order = self._replace(cwd=str(Path.cwd()), attempt=self._last_attempt() + 1)
        write_atomically(self.order, json.dumps(order._asdict(), indent=1, default=str))

    def _last_attempt(self) -> int:
        """Returns the number of the attempt in the order file; 0 without an order file. Raises ConfigError if
        the file is damaged."""
        return Job.read(self.order).attempt if os.path.lexists(self.order) else 0


def _read(path: Path) -> dict[str, Any] | None:
    """Returns the contents of a JSON file; None if the file does not exist. Raises ConfigError if the file is
    damaged."""
    return read_json(path) if os.path.lexists(path) else None


def run_job(job: Job) -> JobState:
    """Runs a job's command to its end, and keeps the job's state file up to date. Returns the state at the
    end. SIGTERM, SIGINT and SIGHUP stop the command."""
    began = time.time()
    process: Program | None = None
    is_stopped = False

    def stop(*_: Any) -> None:
        """Handles a signal: forwards it to the command as SIGTERM."""
        nonlocal is_stopped
        is_stopped = True
        if process is not None:
            process.send_signal(signal.SIGTERM)

    for number in SIGNALS:
        signal.signal(number, stop)
    before = job.read_state()  # a job may queue itself again, so the runner does not know it
    seconds = 0.0 if before is None else before.seconds
    host = socket.gethostname()
    state = JobState(job.attempt, list(job.command), RUNNING, began=began, seconds=seconds, host=host)
    state.write(job.state)
    program, *words = job.command
    try:
        job.result.unlink(missing_ok=True)  # of an earlier attempt
        with open_file(job.log, "ab") as output:
            process = Program(
                [sys.executable if program in PYTHON else program, *words],
                output,
                {**os.environ, **job.env_vars, RESULT_WITHOUT_FOLDER: str(job.result.absolute())},
                job.cwd,
                own_session=False,  # a backend kills this process and the command together
            )
    except OSError as error:
        state = state._replace(state=FAILED, reason=f"cannot start {program}: {error.strerror}")
    else:
        if is_stopped:  # the signal came before there was a process
            stop()
        state._replace(pid=process.pid).write(job.state)
        exit_code = process.wait()
        outcome = FAILED if exit_code else FINISHED
        if is_stopped or (not exit_code and job.read_result().get("status") == STOPPED):
            outcome = STOPPED
        killed_by = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else ""
        reason = killed_by or (f"exit code {exit_code}" if exit_code else "")
        state = state._replace(state=outcome, reason=reason, exit_code=exit_code)
    state = state._replace(seconds=seconds + time.time() - began)
    state.write(job.state)
    return state


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job of an order file, whose path is the only argument.

    Returns the exit code: 0 if the run has finished or was stopped, 1 if it failed, 2 for a bad order file.
    """
    (path,) = sys.argv[1:] if argv is None else argv
    try:
        job = Job.read(Path(path))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if run_job(job).state == FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
