"""One run of a grid as a job: its files, and how it has ended.

The runner writes the order (what to run); the process that runs it, on whatever machine, writes the state.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.experiment_folder import write_atomically

FOLDER = "runner"  # in the folder of the grid: orders, states and logs

WAITING = "waiting"  # for its start
QUEUED = "queued"  # handed to the backend, which has not started it yet
RUNNING = "running"
FINISHED = "finished"
STOPPED = "stopped"  # by a signal; the next start resumes it
FAILED = "failed"
ENDS = (FINISHED, STOPPED, FAILED)


class Order(NamedTuple):
    """The work of a job.

    command: a first word "python" is the interpreter of the job's process. cwd: working directory.
    env_vars: added to the environment. log: file for the output. state: file for the JobState.
    attempt: 1 at the first start of the job. seconds: time that earlier attempts have taken.
    """

    command: list[str]
    cwd: str
    env_vars: dict[str, str]
    log: str
    state: str
    experiment: str
    attempt: int = 1
    seconds: float = 0.0

    @staticmethod
    def read(path: Path) -> "Order":
        """Raises OSError, and ValueError or TypeError if it is no order."""
        return Order(**json.loads(path.read_text()))


class JobState(NamedTuple):
    """How far a job has come.

    attempt, command: of its Order. reason: one line about a job that failed, else empty. exit_code: negative:
    the signal that ended it. began: seconds since 1970 at which the attempt began. seconds: time of all
    attempts that have ended. host, pid: the process that runs the command.
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

    def write(self, path: str) -> None:
        write_atomically(Path(path), json.dumps(self._asdict(), indent=1))


class Job(NamedTuple):
    """A run of the grid.

    name: of the run. group: name of the folder of its Experiment. params: parameter -> value, beside those in
    the base command. folder: the experiment folder of the run. files: folder of the runner's files.
    """

    name: str
    group: str
    command: Sequence[str]
    params: Mapping[str, Any]
    env_vars: Mapping[str, str]
    folder: Path
    files: Path

    @property
    def log(self) -> Path:
        return self.files / f"{self.name}.log"

    @property
    def order(self) -> Path:
        return self.files / f"{self.name}.order.json"

    @property
    def state(self) -> Path:
        return self.files / f"{self.name}.state.json"

    def read_state(self) -> JobState | None:
        """Returns the state of the last attempt that has begun; None if there was none."""
        values = _read(self.state)
        return None if values is None else JobState(**values)

    def read_current(self) -> JobState | None:
        """Returns the state of the last order; None if it has not begun."""
        state = self.read_state()
        order = _read(self.order)
        is_current = state is not None and order is not None and state.attempt == order["attempt"]
        return state if is_current else None

    def is_finished(self) -> bool:
        """Returns whether an earlier start has finished this very command."""
        state = self.read_state()
        return state is not None and state.state == FINISHED and state.command == list(self.command)

    def write_order(self) -> None:
        """Orders the next attempt."""
        before = self.read_state()
        last = _read(self.order)
        order = Order(
            list(self.command),
            str(Path.cwd()),
            dict(self.env_vars),
            str(self.log),
            str(self.state),
            str(self.folder),
            1 if last is None else last["attempt"] + 1,
            0.0 if before is None else before.seconds,
        )
        write_atomically(self.order, json.dumps(order._asdict(), indent=1))


def _read(path: Path) -> Any:
    """Returns the contents of a JSON file; None if there is no file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
