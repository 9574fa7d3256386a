"""In the parent: a process that builds an object and runs it."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from sample_factory.runtime.child_side import (
    Beat,
    ChildContext,
    Finished,
    Ready,
    Stop,
    StopFlag,
    Warned,
)
from sample_factory.runtime.failures import ChildFailed, Failed, PermanentFailure, address_space_limit
from sample_factory.runtime.launch import Body, ChildOptions, Factory, launch
from sample_factory.runtime.log import show_warning_of
from sample_factory.runtime.marked_processes import kill_marked, new_mark

__all__ = [
    "Child",
    "ChildContext",
    "ChildFailed",
    "ChildOptions",
    "PermanentFailure",
    "StopFlag",
    "kill_all",
    "kill_children",
]

POLL_SECONDS = 0.01
# A process that the child forked can hide its end from `wait`, so its exit code is read this often.
EXIT_CODE_SECONDS = 0.2
# Time for a stuck child to print the stacks of its threads.
DUMP_SECONDS = 0.3
# A child that has just been started has no handler for SIGUSR1 yet, so the signal would end it.
SAFE_TO_SIGNAL_SECONDS = 2.0

# All children that this process has started and that are still referred to.
_started: "weakref.WeakSet[Child]" = weakref.WeakSet()


class Child:
    """In the parent: a process where `factory(*args, context)` is built and its `run()` called. Promises:

    1. The object is built in the child. `wait_ready` returns when it is built, or raises with the traceback.
    2. `factory` is a callable, or "module:attribute", which the child imports. It and `args` travel by value
       where they must: classes and functions of the main script or of a notebook work, and the main script is
       not run again. SharedArrays and Queues among the args are shared.
    3. Ctrl+C in the terminal reaches only the main process. `stop`, SIGTERM, and the death of the main
       process (even by kill -9) set `context.stopping`; a child without a parent ends `grace_seconds` later
       at the latest.
    4. Whatever the child has started (simulators) is killed when the child is found to have ended, however it
       ended, also in a session of its own; see kill_marked for the exceptions.
    5. A child that ends without a request to stop has a `failure`, whatever its exit code, unless it is
       one_shot. `failed_before_stop` says whether it had one when it was asked to stop.

    Its methods must be called from one thread of the parent.
    """

    def __init__(
        self,
        name: str,
        factory: Factory,
        args: tuple[Any, ...] = (),
        options: ChildOptions = ChildOptions(),
    ):
        self.name = name
        self.options = options
        self._body = Body(factory, args)
        self._mark = new_mark()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None  # None before the start and after the end
        self._exit_code: int | None = None
        self._started_at = 0.0
        self._ready_at: float | None = None
        self._last_beat: float | None = None
        self._stop_requested = False
        self.failed_before_stop = False
        self._is_killed = False
        self._finished: Finished | None = None
        self._failed: Failed | None = None

    def make_successor(self) -> "Child":
        """Returns a new child that builds the same object, not yet started."""
        return Child(self.name, *self._body, self.options)

    def start(self) -> None:
        """Starts the process and returns at once."""
        connection, childs_end = Pipe()
        try:
            self._process = launch(self.name, self._mark, self._body, self.options, childs_end.fileno())
            self._connection = connection
            self._started_at = time.monotonic()
            _started.add(self)
        finally:
            childs_end.close()

    @property
    def pid(self) -> int:
        """Process id. Only after the start."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and not self._has_ended()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal number if a signal ended it."""
        self._has_ended()
        return self._exit_code

    @property
    def ready(self) -> bool:
        """Whether its object is built."""
        self._read_messages()
        return self._ready_at is not None

    @property
    def finished(self) -> bool:
        """Whether its `run` has returned."""
        self._read_messages()
        return self._finished is not None

    @property
    def result(self) -> Any:
        """Return value of its `run`; None before."""
        self._read_messages()
        return None if self._finished is None else pickle.loads(self._finished.result)

    @property
    def error(self) -> ChildFailed | None:
        """The exception that `wait_ready` raises if the child has failed; None if it has not."""
        reason = self.failure
        return None if reason is None else ChildFailed(self.name, reason, self._failed)

    @property
    def failure(self) -> str | None:
        """Why it failed, in one line; None if it did not. `error` has the traceback."""
        self._has_ended()  # before reading: a child that has ended sends nothing more
        exit_code = self._exit_code
        self._read_messages()
        if self._failed is not None:
            return self._failed.error
        if self._stop_requested or (self.options.one_shot and self._finished):
            return None
        if self._finished:
            return "its run() returned without a request to stop"
        if exit_code is None:
            return None
        hint = self.options.exit_hint
        return f"{_describe_exit(exit_code)}{'; ' if hint else ''}{hint}"

    @property
    def is_permanent_failure(self) -> bool:
        """Whether it has failed and would fail in the same way if it were started again."""
        return self.failure is not None and self._failed is not None and self._failed.permanent

    @property
    def silent_seconds(self) -> float:
        """Time since its last heartbeat, or since it was ready if that is later; 0 for a child that never
        sent one, is not ready yet, has ended or is to stop."""
        self._read_messages()
        if self._last_beat is None or self._ready_at is None or self._stop_requested or not self.is_alive:
            return 0.0
        return time.monotonic() - max(self._last_beat, self._ready_at)

    @property
    def useful_seconds(self) -> float:
        """Time from the moment it was ready to its last heartbeat; without heartbeats, to now."""
        return 0.0 if self._ready_at is None else (self._last_beat or time.monotonic()) - self._ready_at

    @property
    def starting_seconds(self) -> float:
        """Time since the start or, later, the last heartbeat; 0 once it is ready or has ended."""
        if not self.is_alive or self.ready:
            return 0.0
        return time.monotonic() - (self._last_beat or self._started_at)

    @property
    def waitables(self) -> list["Connection[Any, Any]"]:
        """Objects for multiprocessing.connection.wait: one becomes ready when the child sends something or
        dies.
        """
        return [] if self._connection is None else [self._connection]

    def wait_ready(self, timeout: float) -> None:
        """Returns when the object is built.

        Raises ChildFailed if it cannot be built, or is not within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.ready:
            if self.error is not None:
                raise self.error
            if time.monotonic() >= deadline:
                raise ChildFailed(self.name, f"not ready after {timeout:g} s")
            self._wait(deadline - time.monotonic())

    def stop(self) -> None:
        """Asks it to stop, and returns at once."""
        if not self._stop_requested:
            self.failed_before_stop = self.failure is not None
        self._stop_requested = True
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._connection.send(Stop())

    def join(self, timeout: float) -> bool:
        """Waits until it has ended, at most `timeout` seconds. Returns whether it has."""
        return self._wait_for(self._has_ended, timeout)

    def wait_outcome(self, timeout: float) -> bool:
        """Waits until its `run` has returned or it has failed, at most `timeout` seconds. Returns whether
        that is so; the process may still be about to end."""
        return self._wait_for(lambda: self.finished or self.failure is not None, timeout)

    def kill(self) -> None:
        """Kills it and all that it has started; returns when it has ended."""
        kill_all([self])

    def kill_stuck(self, reason: str) -> None:
        """Makes a stuck child print where it is stuck, and kills it; `reason` becomes its failure."""
        self.dump_stacks()
        self.join(DUMP_SECONDS)
        self._failed = self._failed or Failed(reason, message=reason)
        self.kill()

    def dump_stacks(self) -> None:
        """Makes it print the stacks of its threads to stderr, wherever it is stuck."""
        if self.is_alive and (self.ready or self.starting_seconds > SAFE_TO_SIGNAL_SECONDS):
            os.kill(self.pid, signal.SIGUSR1)

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self._read_messages()  # it may be blocked while it sends a long result
            self._wait(deadline - time.monotonic())
        self._read_messages()
        return True

    def _wait(self, seconds: float) -> None:
        """Waits until the child sends something or ends, at most `seconds` and never long."""
        if self._connection is not None:
            wait(self.waitables, min(seconds, EXIT_CODE_SECONDS))
        else:
            time.sleep(min(seconds, POLL_SECONDS))

    def _read_messages(self) -> None:
        if self._connection is None:
            return
        try:
            while self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, Beat):
                    self._last_beat = time.monotonic()
                elif isinstance(message, Ready):
                    self._ready_at = time.monotonic()
                elif isinstance(message, Finished):
                    self._finished = message
                elif isinstance(message, Warned):
                    show_warning_of(*message)
                elif isinstance(message, Failed):
                    # The first exception is the cause; others may follow from it.
                    self._failed = self._failed or message
        except (EOFError, OSError):
            self._connection.close()
            self._connection = None

    def _has_ended(self) -> bool:
        if self._exit_code is None and self._process is not None and _is_dead(self._process):
            # Before the pid is released: afterwards, it could be that of another program's group.
            kill_group(self.pid)
            self._exit_code = self._process.wait()
            self._read_messages()
            ended_by_itself = self._exit_code == 0 and self._finished is not None
            if not ended_by_itself and not self._is_killed:  # otherwise they have been killed
                kill_marked(self._mark)
        return self._exit_code is not None

    def _send_kill(self) -> str:
        """Kills it with its process group, and does not wait. Returns its mark."""
        self._stop_requested = self._is_killed = True
        kill_group(self.pid)
        return self._mark


def kill_all(children: Iterable[Child]) -> None:
    """In the parent: kills children and all that they have started; returns when they have ended."""
    running = [child for child in children if child.is_alive]
    if running:
        _send_kills(running)
    for child in running:
        child.join(timeout=10)


def kill_children() -> None:
    """In the parent: kills all children of this process at once, and all that they have started; a signal
    handler may call it."""
    _send_kills([child for child in list(_started) if child._exit_code is None])


def _send_kills(running: Iterable[Child]) -> None:
    kill_marked(*[child._send_kill() for child in running])


def _is_dead(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether the process has ended; on Linux, without releasing its pid."""
    if sys.platform != "linux":
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # other code of this process has waited for it
        return True


def kill_group(pid: int) -> None:
    """In the parent: sends SIGKILL to the process group that a child leads."""
    # The group may be empty; macOS raises PermissionError for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _describe_exit(exit_code: int) -> str:
    limit = address_space_limit()
    if exit_code >= 0:
        hint = f"; {limit}" if limit else ""
        return f"ended with exit code {exit_code} without a request to stop{hint}"
    name = signal.Signals(-exit_code).name
    hint = "; out of memory?" if name == "SIGKILL" else f"; {limit}" if limit else ""
    return f"ended by signal {-exit_code} ({name}{hint})"
