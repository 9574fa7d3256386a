"""A process that builds an object and runs it: the parent's side."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Self

from sample_factory.runtime.child_side import (
    Beat,
    ChildContext,
    Failed,
    Finished,
    PermanentFailure,
    Ready,
    Stop,
    StopFlag,
    qualified_name,
)
from sample_factory.runtime.launch import ChildOptions, launch

__all__ = [
    "Child",
    "ChildContext",
    "ChildFailed",
    "ChildOptions",
    "PermanentFailure",
    "StopFlag",
    "call_in_child",
    "kill_children",
]

POLL_SECONDS = 0.01
# What a stuck child gets to print where it is stuck.
DUMP_SECONDS = 0.3
# A child that has just been started has no handler yet, so the signal would end it.
SAFE_TO_SIGNAL_SECONDS = 2.0

# All that this process has started and that somebody still refers to.
_started: "weakref.WeakSet[Child]" = weakref.WeakSet()


class ChildFailed(Exception):
    """A child could not be built, raised, or ended without being asked to.

    name: the name of the child.
    reason: one line, or a line and the traceback from inside the child.
    message: `str()` of the exception that ended the child, if one did; otherwise the reason.
    """

    def __init__(self, name: str, reason: str, failed: Failed | None = None):
        """failed: the exception that ended the child; None if it ended otherwise."""
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason
        self.message = reason if failed is None else failed.message
        self._exception_types = frozenset(failed.exception_types if failed is not None else ())
        self._cause_types = frozenset(failed.cause_types if failed is not None else ())

    def is_a(self, exception: type[BaseException] | str) -> bool:
        """Returns whether the exception that ended the child is of this class or of one derived from it.

        exception: a class, or its name as "module.QualName" where its module must not be imported here.
        """
        name = exception if isinstance(exception, str) else qualified_name(exception)
        return name in self._exception_types

    def caused_by(self, exception: type[BaseException] | str) -> bool:
        """Like is_a, for the exception and those that it was raised from or while they were handled."""
        name = exception if isinstance(exception, str) else qualified_name(exception)
        return name in self._exception_types | self._cause_types


class Child:
    """In the parent: a process where `factory(*args, context)` is built and its `run()` called. Promises:

    1. The object is built in the child. `wait_ready` returns when it is built, or raises with the traceback.
    2. `factory` is a callable, or "module:attribute", which the child imports. It and `args` travel by value
       where they must: classes and functions of the main script or of a notebook work, and the main script is
       not run again. SharedArrays and Queues among the args are shared.
    3. Ctrl+C in the terminal reaches only the main process. `stop`, SIGTERM, and the death of the main
       process (even by kill -9) set `context.stopping`; a child without a parent is gone `grace_seconds`
       later at the latest.
    4. Whatever the child has started (simulators) is killed when the child is found to have ended, however it
       ended, unless it left the child's process group.
    5. A child that ends unasked has a `failure`, whatever its exit code, unless it is one_shot.

    Its methods are for one thread of the parent.
    """

    def __init__(
        self, name: str, factory: Callable | str, args: tuple = (), options: ChildOptions = ChildOptions()
    ):
        self.name = name
        self.options = options
        self._recipe = (factory, args)
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None  # None before the start and after the end
        self._exit_code: int | None = None
        self._ready_at: float | None = None
        self._finished: Finished | None = None
        self._failed: Failed | None = None
        self._stop_asked, self._started_at = False, 0.0
        self._last_beat: float | None = None

    def again(self) -> Self:
        """A new child of the same recipe, not yet started."""
        return Child(self.name, *self._recipe, self.options)

    def start(self) -> None:
        """Starts the process and returns at once."""
        connection, childs_end = Pipe()
        try:
            self._process = launch(self.name, self._recipe, self.options, childs_end.fileno())
            self._connection = connection
            self._started_at = time.monotonic()
            _started.add(self)
        finally:
            childs_end.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and not self._has_ended()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal if one ended it."""
        self._has_ended()
        return self._exit_code

    @property
    def ready(self) -> bool:
        """Whether its object is built."""
        self._listen()
        return self._ready_at is not None

    @property
    def finished(self) -> bool:
        """Whether its `run` has returned."""
        self._listen()
        return self._finished is not None

    @property
    def result(self) -> Any:
        """What its `run` has returned; None before."""
        return pickle.loads(self._finished.result) if self.finished else None

    @property
    def error(self) -> ChildFailed | None:
        """What `wait_ready` raises if the child has failed; None if it has not."""
        reason = self.failure
        return None if reason is None else ChildFailed(self.name, reason, self._failed)

    @property
    def failure(self) -> str | None:
        """Why it failed: a line, or a line and the traceback; None if it did not."""
        ended = self._has_ended()
        self._listen()
        if self._failed is not None:
            return f"{self._failed.error}\n{self._failed.traceback}".strip()
        if self._stop_asked or (self.options.one_shot and self._finished):
            return None
        if self._finished:
            return "its run() returned although nobody had asked it to stop"
        return _describe_exit(self._exit_code) if ended else None

    @property
    def is_permanent_failure(self) -> bool:
        """Whether it would fail again if it were started anew."""
        return self.failure is not None and self._failed is not None and self._failed.permanent

    @property
    def silent_seconds(self) -> float:
        """Since it last said that it is not stuck; 0 for one that never did, has ended or is to stop."""
        self._listen()
        is_watched = self._last_beat is not None and not self._stop_asked and self.is_alive
        return time.monotonic() - self._last_beat if is_watched else 0.0

    @property
    def useful_seconds(self) -> float:
        """From the moment it was ready to the last one it is known not to have been stuck."""
        return 0.0 if self._ready_at is None else (self._last_beat or time.monotonic()) - self._ready_at

    @property
    def starting_seconds(self) -> float:
        """For how long it has been building its object; 0 once it is ready or has ended."""
        return 0.0 if not self.is_alive or self.ready else time.monotonic() - self._started_at

    @property
    def waitables(self) -> list[Connection]:
        """For multiprocessing.connection.wait: becomes ready when the child says something or dies."""
        return [] if self._connection is None else [self._connection]

    def wait_ready(self, timeout: float) -> None:
        """Returns when the object is built. Raises ChildFailed if it cannot be built in time."""
        deadline = time.monotonic() + timeout
        while not self.ready:
            if self.error is not None:
                raise self.error
            if time.monotonic() >= deadline:
                raise ChildFailed(self.name, f"not ready after {timeout:g} s")
            self._wait(deadline - time.monotonic())

    def stop(self) -> None:
        """Asks it to stop, and returns at once."""
        self._stop_asked = True
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has just died, which is what was asked for
                self._connection.send(Stop())

    def join(self, timeout: float) -> bool:
        """Whether it has ended within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return False
            self._listen()  # it may be blocked in telling a long result
            self._wait(deadline - time.monotonic())
        self._listen()
        return True

    def kill(self) -> None:
        """Ends it and all that it has started, at once; returns when it has ended."""
        if self.is_alive:
            self.send_kill()
            self.join(timeout=10)

    def send_kill(self) -> None:
        """Like kill, and does not wait; a signal handler may call it."""
        if self._process is not None and self._exit_code is None:
            self._stop_asked = True
            _kill_group(self.pid)

    def give_up(self, reason: str) -> None:
        """Kills a child that is stuck, after it has printed where; `reason` becomes its failure."""
        self.dump_stacks()
        self.join(DUMP_SECONDS)
        self._failed = self._failed or Failed(reason)
        self.kill()

    def dump_stacks(self) -> None:
        """Makes it print the stacks of its threads to stderr, wherever it is stuck."""
        if self.is_alive and (self.ready or self.starting_seconds > SAFE_TO_SIGNAL_SECONDS):
            os.kill(self.pid, signal.SIGUSR1)

    def _wait(self, seconds: float) -> None:
        """Waits until the child says something, but not long: a process that it forked can hide its end."""
        if self._connection is not None:
            wait(self.waitables, min(seconds, 0.2))
        else:
            time.sleep(min(seconds, POLL_SECONDS))

    def _listen(self) -> None:
        try:
            while self._connection is not None and self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, Beat):
                    self._last_beat = time.monotonic()
                if isinstance(message, Ready):
                    self._ready_at = time.monotonic()
                self._finished = message if isinstance(message, Finished) else self._finished
                # The first exception is the cause; others may follow from it.
                self._failed = self._failed or (message if isinstance(message, Failed) else None)
        except (EOFError, OSError):
            self._connection.close()
            self._connection = None

    def _has_ended(self) -> bool:
        if self._exit_code is None and self._process is not None and _is_dead(self._process):
            # Before the pid goes back to the system, where it could come to mean someone else's group.
            _kill_group(self.pid)
            self._exit_code = self._process.wait()
        return self._exit_code is not None


def kill_children() -> None:
    """In the parent: kills all children of this process at once; a signal handler may call it."""
    for child in list(_started):
        child.send_kill()


def _is_dead(process: subprocess.Popen) -> bool:
    """Whether the process has ended; where the system allows, without giving its pid back."""
    if sys.platform != "linux":
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # someone else has waited for it
        return True


def _kill_group(pid: int) -> None:
    # Nobody is left; macOS raises PermissionError for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _describe_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code} although nobody had asked it to stop"
    name = signal.Signals(-exit_code).name
    hint = "; out of memory?" if name == "SIGKILL" else ""
    return f"ended by signal {-exit_code} ({name}{hint})"


def call_in_child(name: str, function: Callable, args: tuple = (), timeout: float = 60.0) -> Any:
    """In the parent: what `function(*args)` returns in a process of its own. Raises ChildFailed.

    For what must not happen here: loading an engine that cannot be unloaded, code that may crash.
    """
    child = Child(name, _Call, (function, args), ChildOptions(one_shot=True))
    child.start()
    try:
        in_time = child.join(timeout)
        if child.error is not None:
            raise child.error
        if not in_time:
            raise ChildFailed(name, f"has not returned after {timeout:g} s")
        return child.result
    finally:
        child.kill()


class _Call:
    def __init__(self, function: Callable, args: tuple, context: ChildContext):
        self._function = function
        self._args = args

    def run(self) -> Any:
        return self._function(*self._args)
