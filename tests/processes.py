"""Looks at processes that may end at any moment."""

import time
from collections.abc import Callable

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Returns whether a process runs; a zombie, which only waits for its parent to notice, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Returns those that still run."""
    return [process for process in processes if is_alive(process)]


def wait_until(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Returns as soon as the condition holds; fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"still not true after {timeout:g} s"
        time.sleep(0.02)
