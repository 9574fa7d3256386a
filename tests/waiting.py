"""Waits for conditions, with a time limit, and looks at processes that may end at any moment."""

import os
import time
from collections.abc import Callable

import psutil

from sample_factory.runtime.child import Child


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Returns whether the condition becomes true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Returns as soon as the condition holds; fails after `seconds`."""
    assert eventually(condition, seconds), f"still not true after {seconds:g} s"


def wait_ready(child: Child, seconds: float) -> None:
    """Returns when the child is ready; raises its failure, or TimeoutError after `seconds`."""
    if not eventually(lambda: child.ready or child.failure is not None, seconds):
        raise TimeoutError(f"{child.name} is not ready after {seconds:g} s")
    if not child.ready:
        raise child.failure


def is_alive(process: psutil.Process | int) -> bool:
    """Returns whether a process runs; a zombie, which only waits for its parent to notice, does not.

    process: or the id of the process that has it now.
    """
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Returns those that still run."""
    return [process for process in processes if is_alive(process)]


def kill_9(pid: int) -> None:
    os.kill(pid, 9)
