"""Waits for conditions, with a time limit."""

import os
import time
from collections.abc import Callable

from sample_factory.runtime.child import Child


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Returns whether the condition becomes true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_ready(child: Child, seconds: float) -> None:
    """Returns when the child is ready; raises its failure, or TimeoutError after `seconds`."""
    if not eventually(lambda: child.ready or child.failure is not None, seconds):
        raise TimeoutError(f"{child.name} is not ready after {seconds:g} s")
    if not child.ready:
        raise child.error


def is_running(pid: int) -> bool:
    """Returns whether the process exists and is no zombie, i.e. has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_9(pid: int) -> None:
    os.kill(pid, 9)
