"""File descriptors that are pickled with the arguments of a child."""

import os
from typing import NamedTuple

# In a child that a template has forked: number of a file descriptor in the parent -> its number in the child.
numbers: dict[int, int] = {}


class PassedFds:
    """Collects the file descriptors that are pickled with a child's arguments.

    During the pickling it takes the place of multiprocessing's process object, which `reduction.DupFd` looks
    up in this thread.
    """

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd

    def DupFd(self, fd: int) -> "PassedFd":  # the name that `reduction.DupFd` calls
        return PassedFd(fd)


class PassedFd(NamedTuple):
    """A file descriptor that the parent passes to a child.
    fd: its number in the parent. The child has it under the same number, unless `numbers` has another one."""

    fd: int

    def detach(self) -> int:
        """In the child: returns the number of the descriptor here, and makes it non-inheritable: a simulator
        that inherits it would keep the file or socket open for as long as it lives."""
        fd = numbers.get(self.fd, self.fd)
        os.set_inheritable(fd, False)
        return fd
