"""In the parent: starts the process of a `Child`.

Why not multiprocessing.Process: its children run the user's main script a second time (so a script without
the `if __name__ == "__main__"` guard starts itself again, and a class from a notebook cannot be found); it
starts one more process, the resource tracker; and a simulator that outlives a killed child keeps the pipe
open by which the parent would notice the death.
"""

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import context
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from sample_factory.runtime.child_side import Setup
from sample_factory.runtime.log import current_settings
from sample_factory.runtime.marked_processes import VARIABLE
from sample_factory.runtime.shared_arrays import anonymous_file

START_CHILD = str(Path(__file__).with_name("start_child.py"))

Factory = Callable[..., Any] | str  # a string: "module:attribute"


class ChildOptions(NamedTuple):
    """How a child runs.

    cores: the CPU cores it may use, with everything it starts; None: those of the parent.
    niceness: added to the parent's.
    environment: variables set before the child's interpreter starts, e.g. {"OMP_NUM_THREADS": "1"}.
    grace_seconds: how long it may continue after the main process has died.
    one_shot: its `run` may return before it is asked to stop.
    own_session: for a child that takes turns with processes which it starts, such as simulators. Several such
        pairs in one session kept the programs of other sessions from the cores for 17 s (Linux 6.18).
    exit_hint: a likely cause of an exit for which the child gives no reason, e.g. by a library.
    """

    cores: frozenset[int] | None = None
    niceness: int = 0
    environment: Mapping[str, str] = {}
    grace_seconds: float = 10.0
    one_shot: bool = False
    own_session: bool = False
    exit_hint: str = ""


class Body(NamedTuple):
    """Object that a child builds: `factory(*args, context)`."""

    factory: Factory
    args: tuple[Any, ...]


def launch(
    name: str, mark: str, body: Body, options: ChildOptions, connection: int
) -> subprocess.Popen[bytes]:
    """Starts the process and does not wait for anything it does.

    mark: for it and the processes that it will start, see marked_processes.py.
    connection: file descriptor of the child's end of the connection. The caller closes it in this process
        afterwards.
    """
    payload, fds = _write_payload(Setup(name, mark, options.grace_seconds, current_settings()), body, options)
    try:
        return subprocess.Popen(
            # -P: the folder of the script must not be searched for modules of the standard library.
            [sys.executable, "-P", START_CHILD, str(payload), str(connection), name],
            pass_fds=[payload, connection, *fds],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **options.environment, VARIABLE: mark},
            # A process group of its own, with all that it will start, so that Ctrl+C in the terminal does not
            # reach it. Not always a session of its own too: see `cpu.pass_niceness_to_session`.
            process_group=None if options.own_session else 0,
            start_new_session=options.own_session,
        )
    finally:
        os.close(payload)


def _write_payload(setup: Setup, body: Body, options: ChildOptions) -> tuple[int, list[int]]:
    """Returns (a file with all that the child needs, the file descriptors that must be passed with it).

    A file and not the connection, because writing to that would wait until the child's interpreter runs.
    """
    stream = io.BytesIO()
    passed_fds = _PassedFds()
    header = {"path": sys.path, "cores": options.cores, "niceness": options.niceness}
    pickle.dump(header, stream)
    pickle.dump(setup, stream)
    context.set_spawning_popen(passed_fds)  # type: ignore[arg-type]  # takes its place, see the class
    try:
        cloudpickle.dump(tuple(body), stream)
    finally:
        context.set_spawning_popen(None)
    fd = anonymous_file(0)
    with open(fd, "wb", closefd=False) as file:
        file.write(stream.getbuffer())
    return fd, passed_fds.fds


class _PassedFds:
    """Collects the file descriptors that are pickled with a child's arguments. While they are pickled, takes
    the place of multiprocessing's process object, which `reduction.DupFd` looks up in this thread.
    """

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd

    def DupFd(self, fd: int) -> "_PassedFd":  # the name that `reduction.DupFd` calls
        return _PassedFd(fd)


class _PassedFd(NamedTuple):
    """A file descriptor that has the same number in the child."""

    fd: int

    def detach(self) -> int:
        """In the child: returns the descriptor. Programs that the child starts do not inherit it; otherwise a
        simulator would keep open what is behind it for as long as it lives.
        """
        os.set_inheritable(self.fd, False)
        return self.fd
