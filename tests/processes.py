"""Looks at processes that may end at any moment."""

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
