"""The process around one run of a grid: python -m sample_factory.runner.run_job ORDER_FILE

Started by every backend, on the machine where the run is to be. Promises:

1. The output of the command is appended to the log of the job, its result is in the state file.
2. SIGTERM, SIGINT and SIGHUP are forwarded as SIGTERM: a training run saves and stops.
3. If the process that has started this one dies, or this one dies, the command gets SIGTERM.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sample_factory.mainloop.run_result import RESULT_FILE
from sample_factory.runner.jobs import FAILED, FINISHED, RUNNING, STOPPED, JobState, Order

PR_SET_PDEATHSIG = 1  # of Linux's prctl
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PYTHON = ("python", "python3")


def end_with_parent() -> Callable[[], Any]:
    """Returns a function that makes the process which calls it get SIGTERM when its parent ends."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl  # looked up before a fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_job(order: Order) -> JobState:
    """Runs the command of an order and returns its last state, which is written to the state file."""
    began = time.time()
    process: subprocess.Popen[bytes] | None = None
    is_stopped = False

    def stop(*_: Any) -> None:
        """A signal handler."""
        nonlocal is_stopped
        is_stopped = True
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)

    for number in SIGNALS:
        signal.signal(number, stop)
    end_with_parent()()
    host = socket.gethostname()
    state = JobState(order.attempt, order.command, RUNNING, began=began, seconds=order.seconds, host=host)
    state.write(order.state)
    program, *words = order.command
    try:
        with open(order.log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable if program in PYTHON else program, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=order.cwd,
                env={**os.environ, **order.env_vars},
                preexec_fn=end_with_parent(),
            )
    except OSError as error:
        state = state._replace(state=FAILED, reason=f"cannot start {program}: {error.strerror}")
    else:
        if is_stopped:  # the signal came before there was a process
            stop()
        state._replace(pid=process.pid).write(order.state)
        exit_code = process.wait()
        outcome = FAILED if exit_code else FINISHED
        if is_stopped or (not exit_code and _was_stopped(order)):
            outcome = STOPPED
        state = state._replace(state=outcome, reason=_describe_exit(exit_code), exit_code=exit_code)
    state = state._replace(seconds=order.seconds + time.time() - began)
    state.write(order.state)
    return state


def _was_stopped(order: Order) -> bool:
    """Returns whether a run of this package that has ended without an error was stopped, not done."""
    try:
        return bool(json.loads(Path(order.experiment, RESULT_FILE).read_text())["status"] == STOPPED)
    except FileNotFoundError:  # another program
        return False


def _describe_exit(exit_code: int) -> str:
    """Returns e.g. "exit code 1" or "killed by SIGKILL"; an empty string for 0."""
    if exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}" if exit_code else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if the run is finished or was stopped, otherwise 1."""
    (path,) = sys.argv[1:] if argv is None else argv
    return 1 if run_job(Order.read(Path(path))).state == FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
