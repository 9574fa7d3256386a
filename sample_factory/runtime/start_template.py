"""The program of a template process: `python start_template.py SOCKET MODULES`, started by `Template`.

SOCKET is an inherited file descriptor. MODULES are separated by commas.
"""

import contextlib
import gc
import importlib
import os
import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_FDS = 250  # with one message; Linux allows 253


def main(socket_fd: int, modules: Sequence[str]) -> None:
    """Imports the modules, tells the parent whether forking is safe, and serves its requests.

    A request is a list of numbers of file descriptors, to fork a child with them; the id of a child that has
    ended, to return its exit code; or None, to unload the modules. Returns when the parent has ended; in a
    forked child, when the work of the child is done.
    """
    os.set_inheritable(socket_fd, False)
    parent = socket.socket(fileno=socket_fd)
    with contextlib.suppress(OSError):  # some sandboxes let nobody write there
        Path("/proc/self/comm").write_text("template")  # the name that `top` shows
    gc.disable()  # it would search the new modules for garbage again and again
    for module in modules:
        # A child imports it once more, and reports why that fails.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()  # children neither search these objects for garbage nor write to their memory
    gc.enable()
    # In a child, locks that other threads hold during the fork would stay locked.
    _answer(parent, len(os.listdir("/proc/self/task")) == 1)
    while True:
        request, fds = _receive(parent)
        if not request:
            return
        content = pickle.loads(request)
        if content is None:  # unload the modules: this program anew, without them, as the same process
            os.set_inheritable(socket_fd, True)
            os.execv(sys.executable, [sys.executable, "-P", __file__, str(socket_fd), ""])
        if isinstance(content, int):  # a child that has ended
            answer = os.waitstatus_to_exitcode(os.waitpid(content, 0)[1])
        else:
            payload, connection = fds[:2]
            settings = _read_settings(payload)
            answer = _fork(settings["own_session"])
            if answer == 0:
                parent.close()
                _become_child(settings, dict(zip(content, fds[2:], strict=True)))
                _run_child(payload, connection)
                return
            for fd in fds:
                os.close(fd)
        _answer(parent, answer)


def _receive(parent: socket.socket) -> tuple[bytes, list[int]]:
    """Waits for the next request; returns (pickled request, file descriptors sent with it).
    Both are empty if the parent has closed the connection or died."""
    try:
        request, fds, _, _ = socket.recv_fds(parent, 65_536, MAX_FDS)
    except ConnectionError:  # an answer was not read
        return b"", []
    return request, fds


def _answer(parent: socket.socket, answer: Any) -> None:
    with contextlib.suppress(ConnectionError):  # then no request follows
        parent.send(pickle.dumps(answer))


def _read_settings(payload_fd: int) -> Mapping[str, Any]:
    with open(payload_fd, "rb", closefd=False) as payload:
        payload.seek(0)
        settings: Mapping[str, Any] = pickle.load(payload)
        return settings


def _fork(own_session: bool) -> int:
    """Forks this process; returns the child's process id, or 0 in the child.
    Returns only when the child leads a process group, so that the parent can kill it by its group."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        else:
            os.setpgid(0, 0)
    os.close(writer)
    if pid != 0:
        os.read(reader, 1)  # returns when the child has closed its end, too
    os.close(reader)
    return pid


def _become_child(settings: Mapping[str, Any], passed: Mapping[int, int]) -> None:
    """In a forked process: gives this process the environment and file descriptors of a child with these
    settings.

    passed: number of each passed file descriptor in the parent -> its number in this process.
    """
    from sample_factory.runtime import passed_fds

    passed_fds.numbers.update(passed)
    os.environ.clear()
    os.environ.update(settings["environment"])
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # otherwise all children would draw the same numbers


def _run_child(payload_fd: int, connection_fd: int) -> None:
    from sample_factory.runtime.start_child import main as run

    run(payload_fd, connection_fd)


if __name__ == "__main__":  # processes that a child starts by multiprocessing import this module too
    main(int(sys.argv[1]), sys.argv[2].split(","))
