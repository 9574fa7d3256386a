"""File descriptors that are pickled with the arguments of a child."""

import os
from typing import NamedTuple

# In a child that a template has forked: number of a file descriptor in the parent -> its number in the child.
numbers: dict[int, int] = {}


class PassedFds:
    """Collects in `fds` the file descriptors that are pickled with a child's arguments.

    While the arguments are pickled, this object takes the place of multiprocessing's object for a process
    that is being started, whose methods `reduction.DupFd` calls.
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

    fd: number of the descriptor in the parent. The child uses the same number, unless a template has forked
        the child: then the module's dict `numbers` maps it to the number in the child.
    """

    fd: int

    def detach(self) -> int:
        """In the child: returns the number of the descriptor in this process, and makes the descriptor
        non-inheritable: a simulator that inherited it would keep the file or socket open."""
        fd = numbers.get(self.fd, self.fd)
        os.set_inheritable(fd, False)
        return fd
