"""In the parent: a process that has imported large modules, from which children are forked.

Importing torch takes 1 to 2 s of a core. With a template it is imported once for all children, while the
parent still plans the run.
"""

import contextlib
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.runtime.start_template import MAX_FDS

START_TEMPLATE = str(Path(__file__).with_name("start_template.py"))
IMPORT_SECONDS = 60.0  # for the imports, which take long from a network file system
ANSWER_SECONDS = 10.0  # for a fork
LOST = 256  # exit code of a child whose template has ended before it

_current: "Template | None" = None


class Template:
    """In the parent: manages a process that imports modules and then forks children. Promises:

    1. The constructor returns at once; `fork` waits for the imports.
    2. `fork` returns None if the process cannot fork safely, has died or does not answer; it logs why, once.
    3. The process ends with `close`, and when the parent dies. Its children go on.

    Several threads may call the methods.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]):
        """Starts the template process, which imports modules.

        environment: variables of the template process, e.g. for libraries that read them when they are
            imported; forked children get the environment of their `ChildOptions` instead.
        """
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_ready = False
        self._is_useless = False
        self._lock = threading.RLock()  # held from a request to its answer
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", START_TEMPLATE, str(fd), ",".join(modules)],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                process_group=0,  # Ctrl+C in the terminal does not reach it
            )

    def fork(self, name: str, payload: int, connection: int, fds: Sequence[int]) -> "ForkedProcess | None":
        """Forks a child; returns None if the template process cannot fork safely, has died or does not
        answer, or if there are too many descriptors to pass.

        payload, connection: file descriptors of the child's settings and arguments, and of its end of the
            connection.
        fds: further descriptors to pass to the child.

        Raises Failure if the template accepts the request, and then dies or does not answer.
        """
        with self._lock:
            return self._fork(name, payload, connection, fds)

    def _fork(self, name: str, payload: int, connection: int, fds: Sequence[int]) -> "ForkedProcess | None":
        if self._is_useless or len(fds) + 2 > MAX_FDS:
            return None
        if not self._is_ready:
            self._is_ready = True
            can_fork = self._receive(IMPORT_SECONDS)
            if can_fork is False:
                self._give_up("it has several threads")
            if not can_fork:
                return None
        # The parent may have changed its limit since it has started the template.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, limit)
        if not self._send(list(fds), [payload, connection, *fds]):
            return None
        pid = self._receive(ANSWER_SECONDS)
        if pid is None:
            raise Failure(name, "the template process, which forks it, has died or does not answer")
        return ForkedProcess(pid, self)

    def unload_modules(self) -> None:
        """Frees the memory of the imported modules, about 60 MB with torch. Children that are forked later
        import their modules themselves."""
        with self._lock:
            if self._is_ready and not self._is_useless and self._send(None):
                self._receive(IMPORT_SECONDS)  # the program starts anew, and answers as at its first start

    def exit_code(self, pid: int) -> int:
        """Returns the exit code of a child that has ended, and lets the system reuse its process id. Returns
        LOST (256) if the template has ended before the child."""
        with self._lock:
            code = self._receive(ANSWER_SECONDS) if not self._is_useless and self._send(pid) else None
        return LOST if code is None else code

    def _send(self, request: Any, fds: Sequence[int] = ()) -> bool:
        try:
            socket.send_fds(self._socket, [pickle.dumps(request)], fds)
        except OSError:
            self._give_up()
            return False
        return True

    def _receive(self, timeout: float) -> Any:
        """Waits for an answer of the template process and returns it. Without an answer within `timeout`
        seconds, ends the template process and returns None."""
        self._socket.settimeout(timeout)
        try:
            answer = self._socket.recv(1024)
        except TimeoutError:
            self._give_up(f"no answer after {timeout:g} s")
            return None
        if not answer:
            self._give_up()
            return None
        return pickle.loads(answer)

    def _give_up(self, reason: str = "") -> None:
        """Ends the template for good and logs the reason. `reason`: "" if the process has ended by itself."""
        self._is_useless = True
        self.close()
        text = "The template process is not used any more, processes start without it: %s"
        log.warning(text, reason or f"it has ended with exit code {self._process.returncode}")

    def close(self) -> None:
        """Ends the template process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """In the parent: a process that a template has forked, used like an `ExecutedProcess`."""

    def __init__(self, pid: int, template: Template):
        self.pid = pid
        self._template = template
        self._state = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # read through it, no other process is meant

    def has_ended(self) -> bool:
        """Returns whether the process has ended; its process id stays reserved until `wait`."""
        try:
            return os.pread(self._state, 64, 0).rpartition(b") ")[2][:1] in (b"Z", b"X")
        except ProcessLookupError:  # the template has ended before, and the system has released the id
            return True

    def wait(self) -> int:
        """Returns the exit code of the process, which must have ended, and lets the system reuse its id. The
        code is minus the number of a signal that ended the process. To be called once."""
        os.close(self._state)
        return self._template.exit_code(self.pid)


@contextlib.contextmanager
def template(modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """Returns a block in which children with `ChildOptions.from_template` are forked from one process.
    Within another such block, the process of the outer block is used.

    modules: names of the modules that the process imports first. environment: variables of the process.
    """
    global _current
    if _current is not None:
        yield
        return
    _current = Template(modules, environment)
    try:
        yield
    finally:
        _current.close()
        _current = None


def current() -> Template | None:
    """Returns the template of this process; None outside of a `template` block."""
    return _current
