"""In the parent: how the process of a `Child` comes to be.

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
from typing import NamedTuple

import cloudpickle

from sample_factory.runtime.child_side import Setup
from sample_factory.runtime.log import current_settings
from sample_factory.runtime.shared_arrays import anonymous_file

Recipe = tuple[Callable | str, tuple]  # (factory, its first arguments)


class ChildOptions(NamedTuple):
    """How a child runs.

    cores: the CPU cores it may use, with everything it starts; None: those of the parent.
    niceness: added to the parent's.
    environment: variables set before the child's interpreter starts, e.g. {"OMP_NUM_THREADS": "1"}.
    grace_seconds: how long it may go on after the main process has died.
    one_shot: its `run` may return before it is asked to stop.
    own_session: for a child that takes turns with processes which it starts, such as simulators. Several such
        pairs in one session kept the programs of other sessions from the cores for 17 s (Linux 6.18).
    """

    cores: frozenset[int] | None = None
    niceness: int = 0
    environment: Mapping[str, str] = {}
    grace_seconds: float = 10.0
    one_shot: bool = False
    own_session: bool = False


def launch(name: str, recipe: Recipe, options: ChildOptions, connection: int) -> subprocess.Popen:
    """Starts the process and does not wait for anything it does.

    connection: the descriptor of its end of the connection; the caller closes it here afterwards.
    """
    payload, fds = _payload(name, recipe, options)
    try:
        return subprocess.Popen(
            # The name is there for `ps`.
            [sys.executable, "-c", _bootstrap(payload, connection), name],
            pass_fds=[payload, connection, *fds],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **options.environment},
            # A group of its own, with all it will start: no Ctrl+C from the terminal. Not always a session of
            # its own too: see `cpu.pass_niceness_to_session`.
            process_group=None if options.own_session else 0,
            start_new_session=options.own_session,
        )
    finally:
        os.close(payload)


def _payload(name: str, recipe: Recipe, options: ChildOptions) -> tuple[int, list[int]]:
    """(a file with all that the child needs, the descriptors that must be passed along).

    A file and not the connection, because writing to that would wait for the child's interpreter to come up.
    """
    stream, handover = io.BytesIO(), _Handover()
    header = {"path": sys.path, "cores": options.cores, "niceness": options.niceness}
    pickle.dump(header, stream)
    pickle.dump(Setup(name, options.grace_seconds, current_settings()), stream)
    context.set_spawning_popen(handover)  # of this thread only
    try:
        cloudpickle.dump(recipe, stream)
    finally:
        context.set_spawning_popen(None)
    fd = anonymous_file(0)
    with open(fd, "wb", closefd=False) as file:
        file.write(stream.getbuffer())
    return fd, handover.fds


class _Handover:
    """Stands where DupFd expects multiprocessing's process-being-spawned; collects the descriptors."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd

    def DupFd(self, fd: int) -> "_PassedFd":  # the name that DupFd calls
        return _PassedFd(fd)


class _PassedFd(NamedTuple):
    """A descriptor that has the same number in the child."""

    fd: int

    def detach(self) -> int:
        """In the child. Otherwise a simulator that it starts would hold what is behind the descriptor."""
        os.set_inheritable(self.fd, False)
        return self.fd


def _bootstrap(payload: int, connection: int) -> str:
    """The child's first lines: what must be in effect before anything large is imported."""
    return (
        "import os, pickle, sys\n"
        f"file = os.fdopen(os.dup({payload}), 'rb'); file.seek(0); header = pickle.load(file); file.close()\n"
        "sys.path[:] = header['path']\n"
        "if header['cores']: os.sched_setaffinity(0, header['cores'])\n"
        "if header['niceness']: os.nice(header['niceness'])\n"
        "from sample_factory.runtime.child_side import child_main\n"
        f"child_main({payload}, {connection})\n"
    )
