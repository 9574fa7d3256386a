"""Starts and ends commands, such as a training run of a grid; kills all processes that a child has started.

For an object in a process of its own see child.py.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import IO, Any

import psutil

PR_SET_PDEATHSIG = 1  # of Linux's prctl
VARIABLE = "SAMPLE_FACTORY_CHILD"  # value: the mark of a child
CERTAIN_SECONDS = 0.5  # limit for repeated searches while processes come and go
PAUSE_SECONDS = 0.01
KTHREADD = 2  # process id of the parent of all kernel threads


class Program(subprocess.Popen[bytes]):
    """In the parent: a running command. The system sends it SIGTERM when the parent ends, even by kill -9, so
    that a training run saves and stops.
    """

    def __init__(
        self,
        command: Sequence[str],
        output: IO[bytes] | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        own_session: bool = True,
    ):
        """Starts the command. Raises OSError if that fails.

        output: a file for stdout and stderr, or subprocess.DEVNULL; default: stdout and stderr of the parent.
        own_session: start a session, so that Ctrl+C in the terminal does not reach the command, and `end` can
            kill its whole process group.
        """
        prctl: Any = ctypes.CDLL(None).prctl  # looked up before the fork
        super().__init__(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=own_session,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )

    def end(self, *requests: tuple[int, float | None]) -> None:
        """Sends signals in turn, and then kills the process group of a command that still runs.
        requests: pairs (signal number, seconds to wait for the end of the command; None: no limit)."""
        try:
            for number, seconds in requests:
                self.send_signal(number)  # does nothing once the command has ended
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.wait(seconds)
        finally:  # also when a second Ctrl+C ends the wait
            if self.poll() is None:
                kill_group(self.pid)
                self.wait()


def kill_group(pid: int) -> None:
    """Sends SIGKILL to the process group that a process leads."""
    # The group may be empty, or hold processes of another account only.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def new_mark() -> str:
    """Returns a unique text for one child: an environment variable with this value marks all processes that
    the child starts, see `kill_marked`."""
    return uuid.uuid4().hex


def unmarked_environment() -> dict[str, str]:
    """Returns this process's environment without the variable by which `kill_marked` finds processes, for a
    program that is to outlive this process."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def kill_marked(*marks: str) -> None:
    """Kills all processes with one of these marks, except this process.

    A mark is the value of the environment variable VARIABLE. All processes that a child starts inherit it,
    and keep it when they leave the child's process group and session, or when their parent dies.

    Takes about 0.1 ms per process of the machine. Does not find processes of other users, processes started
    with an environment without VARIABLE, and forks of a child that is itself forked from the template: these
    forks are killed with the child's process group.
    """
    killed: set[psutil.Process] = set()
    give_up = time.monotonic() + CERTAIN_SECONDS
    while True:
        marked, is_certain = _find(marks)
        for process in marked - killed:
            with contextlib.suppress(psutil.Error):  # it has ended
                process.kill()
        if marked <= killed and (is_certain or time.monotonic() > give_up):
            return
        killed |= marked
        time.sleep(PAUSE_SECONDS)


def _find(marks: tuple[str, ...]) -> tuple[set[psutil.Process], bool]:
    """Returns (the processes with one of these marks except this process, whether the set is certainly
    complete). Processes that start or end during the search may be missing."""
    marked = set()
    is_certain = True
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(VARIABLE) in marks and process.pid != os.getpid():
                marked.add(process)
            elif not environment and process.status() != psutil.STATUS_ZOMBIE:
                # Unless it is a kernel thread, it may be about to replace its program by another one.
                is_certain = is_certain and process.ppid() == KTHREADD
        except psutil.AccessDenied:  # it belongs to another user
            continue
        except psutil.NoSuchProcess:  # or a zombie or a kernel thread, without an environment
            if not process.is_running():  # before it ended, it may have started a process that is not listed
                is_certain = False
    return marked, is_certain
