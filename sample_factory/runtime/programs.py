"""In the parent: starts, watches and ends commands, such as a training run of a grid or of a benchmark.

For an object in a process of its own see child.py.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

PR_SET_PDEATHSIG = 1  # of Linux's prctl


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
