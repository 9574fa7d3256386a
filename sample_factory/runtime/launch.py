"""In the parent: starts the process of a `Child`.

multiprocessing.Process does not serve here, for three reasons:

- Its children run the user's main script a second time: a script without the `if __name__ == "__main__"`
  guard starts itself again, and a class from a notebook cannot be found.
- It starts one more process, the resource tracker.
- A simulator that outlives a killed child keeps the pipe open by which the parent would notice the death.
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

from sample_factory.runtime.log import current_settings
from sample_factory.runtime.marked_processes import VARIABLE
from sample_factory.runtime.shared_arrays import anonymous_file

START_CHILD = str(Path(__file__).with_name("start_child.py"))

Factory = Callable[..., Any] | str  # a string: "module:attribute"


class ChildOptions(NamedTuple):
    """How a child runs.

    cores: CPU cores that the child and everything it starts may use; None: the parent's cores.
    niceness: added to the parent's nice value.
    environment: variables set before the child's interpreter starts, e.g. {"OMP_NUM_THREADS": "1"}.
    grace_seconds: how long the child may continue after the main process has died.
    one_shot: `run` may return before the child is asked to stop.
    own_session: for a child that takes turns with processes it starts, such as simulators. Several such pairs
        in one session kept the programs of other sessions from the cores for 17 s (Linux 6.18).
    exit_hint: likely cause of an exit without an exception, such as an exit by a library; for the message.
    """

    cores: frozenset[int] | None = None
    niceness: int = 0
    environment: Mapping[str, str] = {}
    grace_seconds: float = 10.0
    one_shot: bool = False
    own_session: bool = False
    exit_hint: str = ""


def launch(
    name: str,
    mark: str,
    factory: Factory,
    args: tuple[Any, ...],
    options: ChildOptions,
    connection: int,
) -> subprocess.Popen[bytes]:
    """Starts a process that will build `factory(*args, context)`; returns without waiting for it.

    mark: for the process and whatever it will start, see marked_processes.py.
    connection: file descriptor of the child's end of the connection. The caller closes it afterwards.
    """
    settings = {
        "name": name,
        "mark": mark,
        "path": sys.path,
        "cores": options.cores,
        "niceness": options.niceness,
        "grace_seconds": options.grace_seconds,
        **current_settings(),
    }
    payload, fds = _write_payload(settings, factory, args)
    try:
        return subprocess.Popen(
            # -P: the folder of the script must not be searched for modules of the standard library.
            [sys.executable, "-P", START_CHILD, str(payload), str(connection), name],
            pass_fds=[payload, connection, *fds],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **options.environment, VARIABLE: mark},
            # A process group of its own, so that Ctrl+C in the terminal reaches neither the child nor what it
            # starts. A session of its own only on request, see `cpu.pass_niceness_to_session`.
            process_group=None if options.own_session else 0,
            start_new_session=options.own_session,
        )
    finally:
        os.close(payload)


def _write_payload(
    settings: Mapping[str, Any], factory: Factory, args: tuple[Any, ...]
) -> tuple[int, list[int]]:
    """Returns (a file with all that the child needs, the file descriptors to pass with it).

    A file rather than the connection: writing to the connection would wait for the child's interpreter.
    """
    stream = io.BytesIO()
    pickle.dump(settings, stream)
    passed_fds = _PassedFds()
    context.set_spawning_popen(passed_fds)  # type: ignore[arg-type]  # takes its place, see the class
    try:
        cloudpickle.dump((factory, args), stream)
    finally:
        context.set_spawning_popen(None)
    fd = anonymous_file(0)
    with open(fd, "wb", closefd=False) as file:
        file.write(stream.getbuffer())
    return fd, passed_fds.fds


class _PassedFds:
    """Collects the file descriptors that are pickled with a child's arguments.

    During the pickling it takes the place of multiprocessing's process object, which `reduction.DupFd` looks
    up in this thread.
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
        """In the child: returns the descriptor, which programs that the child starts do not inherit: a
        simulator would keep the file or socket open for as long as it lives."""
        os.set_inheritable(self.fd, False)
        return self.fd
