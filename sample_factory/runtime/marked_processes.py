"""Finds and kills the processes that a child has started.

They inherit a variable of the child's environment. They keep it when they leave the child's process group and
session, and when their parent dies, so that nothing else leads to them any more.
"""

import contextlib
import os
import time
import uuid

import psutil

VARIABLE = "SAMPLE_FACTORY_CHILD"  # value: the mark of a child
CERTAIN_SECONDS = 0.5  # limit for repeated searches while processes come and go
PAUSE_SECONDS = 0.01
KTHREADD = 2  # process id of the parent of all kernel threads


def new_mark() -> str:
    """Returns a unique mark: the value of VARIABLE for one child and all that it starts."""
    return uuid.uuid4().hex


def unmarked_environment() -> dict[str, str]:
    """Returns this process's environment without a mark, for a program that is to outlive the process."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def kill_marked(*marks: str) -> None:
    """Kills all processes with one of these marks, except this process.

    Takes about 0.1 ms per process of the machine. Does not find processes of other users, processes started
    with an environment without VARIABLE, and forks of a child that is itself forked from the template: these
    are killed with its process group.
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
    """Returns the processes with one of these marks, except this one, and whether the set is certainly
    complete: processes that start or end during the search may be missing."""
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
