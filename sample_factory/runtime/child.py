"""In the parent: a process that builds an object and runs it; `call_in_child` for a single call."""

import contextlib
import os
import pickle
import signal
import time
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from sample_factory.runtime.child_side import (
    END_SECONDS,
    ChildContext,
    Finished,
    Notice,
    Warned,
)
from sample_factory.runtime.failures import ConfigError, Failure, address_space_limit
from sample_factory.runtime.launch import ChildOptions, Factory, Process, launch
from sample_factory.runtime.log import log, show_warning_of
from sample_factory.runtime.programs import kill_group, kill_marked, new_mark
from sample_factory.runtime.template import LOST

__all__ = ["Child", "ChildContext", "ChildOptions", "call_in_child"]

POLL_SECONDS = 0.01
# A process forked by the child can hide the child's end from `wait`, so the exit code is read this often.
EXIT_CODE_SECONDS = 0.2
# Time for a stuck child to print the stacks of its threads.
DUMP_SECONDS = 1.0
# A child that has just started has no handler for SIGUSR1 yet: the signal would end it.
SAFE_TO_SIGNAL_SECONDS = 2.0
# How much longer than END_SECONDS `run_in_child` waits for the child to end by itself.
MORE_SECONDS = 1.0

# All children that this process has started, as long as something refers to them.
_started: "weakref.WeakSet[Child]" = weakref.WeakSet()


class Child:
    """In the parent: manages a process that builds an object by `factory(*args, context)` and calls the
    object's `run()`. Promises:

    1. The object is built in the child. `ready` tells whether it is built, `failure` why it could not be.
    2. `factory` is a callable, or a string "module:attribute" that the child imports. Classes and functions
       of the main script or of a notebook work: they are sent by value, and the script does not run again.
       SharedArrays and Queues among the args are shared.
    3. Ctrl+C in the terminal reaches only the main process. `stop`, SIGTERM, and the death of the main
       process (even by kill -9) set `context.stopping`. A child whose parent has died ends within
       `grace_seconds`.
    4. However the child ends, whatever it has started (simulators) is killed, also in other sessions; see
       `kill_marked` for the exceptions.
    5. A child that ends without a request to stop has a `failure`, whatever its exit code, unless it is
       one_shot. `failed_before_stop` tells whether the child had failed before it was asked to stop.

    Call the methods from one thread of the parent only.
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
        self._factory = factory
        self._args = args
        self._mark = new_mark()
        self._process: Process | None = None
        # None before the start, and after the process has closed its end.
        self._connection: Connection[Any, Any] | None = None
        self._exit_code: int | None = None
        self._started_at = 0.0
        self._ready_at: float | None = None
        self._last_beat: float | None = None
        self._stop_requested = False
        self.failed_before_stop = False
        self._is_killed = False
        self._finished: Finished | None = None
        self._failed: Failure | None = None

    def make_successor(self) -> "Child":
        """Returns a new child with the same name, factory, arguments and options; it is not started yet."""
        return Child(self.name, self._factory, self._args, self.options)

    def start(self) -> None:
        """Starts the process and returns at once."""
        connection, childs_end = Pipe()
        try:
            self._process = launch(
                self.name, self._mark, self._factory, self._args, self.options, childs_end.fileno()
            )
            self._connection = connection
            self._started_at = time.monotonic()
            _started.add(self)
        finally:
            childs_end.close()

    @property
    def pid(self) -> int:
        """Returns the process id. To be called after `start`."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and not self._has_ended()

    @property
    def exit_code(self) -> int | None:
        """Returns the exit code of the process: None while the process runs, minus the signal number if a
        signal ended it."""
        self._has_ended()
        return self._exit_code

    @property
    def ready(self) -> bool:
        """Whether the child has built its object, so that `run` has begun."""
        self._read_messages()
        return self._ready_at is not None

    @property
    def finished(self) -> bool:
        """Whether `run` has returned."""
        self._read_messages()
        return self._finished is not None

    @property
    def result(self) -> Any:
        """Return value of `run`; None before it has returned."""
        self._read_messages()
        return None if self._finished is None else pickle.loads(self._finished.result)

    @property
    def failure(self) -> Failure | None:
        """Returns why the child failed, raised or ended without a request to stop; None if it has not
        failed."""
        self._has_ended()  # before reading: a child that has ended sends nothing more
        exit_code = self._exit_code
        self._read_messages()
        if self._failed is not None:
            return self._failed
        if self._stop_requested or (self.options.one_shot and self._finished):
            return None
        if self._finished:
            return Failure(self.name, "its run() returned without a request to stop")
        if exit_code is None:
            return None
        hint = self.options.exit_hint
        return Failure(self.name, f"{_describe_exit(exit_code)}{'; ' if hint else ''}{hint}")

    @property
    def silent_seconds(self) -> float:
        """Seconds since the child was last known to be at work: the later of its last heartbeat and `ready`.
        0 for a child that never sent a heartbeat, is not ready, has ended, or has been asked to stop."""
        self._read_messages()
        if self._last_beat is None or self._ready_at is None or self._stop_requested or not self.is_alive:
            return 0.0
        return time.monotonic() - max(self._last_beat, self._ready_at)

    @property
    def useful_seconds(self) -> float:
        """Seconds for which the child was at work: from `ready` to the last heartbeat, or to now for a child
        without heartbeats. 0 if the child was never ready."""
        return 0.0 if self._ready_at is None else (self._last_beat or time.monotonic()) - self._ready_at

    @property
    def starting_seconds(self) -> float:
        """Seconds since the last heartbeat, or since the start if there was none; 0 once the child is ready
        or has ended."""
        if not self.is_alive or self.ready:
            return 0.0
        return time.monotonic() - (self._last_beat or self._started_at)

    def excuse(self, seconds: float) -> None:
        """Subtracts the duration of a suspension of this process from `silent_seconds` and
        `starting_seconds`, so that the child does not count as stuck."""
        self._read_messages()
        now = time.monotonic()
        self._started_at = min(now, self._started_at + seconds)
        if self._last_beat is not None:
            self._last_beat = min(now, self._last_beat + seconds)

    def stop(self) -> None:
        """Asks the child to stop, and returns at once."""
        if not self._stop_requested:
            self.failed_before_stop = self.failure is not None
        self._stop_requested = True
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._connection.send(Notice.STOP)

    def join(self, timeout: float) -> bool:
        """Waits until the process has ended, at most `timeout` seconds. Returns whether it has."""
        return self._wait_for(self._has_ended, timeout)

    def kill(self) -> None:
        """Kills the child and all that it has started; returns when the child has ended."""
        kill_all([self])

    def kill_stuck(self, reason: str) -> None:
        """Makes a stuck child print the stacks of its threads, and kills it; `reason` becomes its failure."""
        self.dump_stacks()
        self.join(DUMP_SECONDS)
        self._failed = self._failed or Failure(self.name, reason)
        self.kill()

    def dump_stacks(self) -> None:
        """Makes the child print the stacks of its threads to stderr, wherever it is stuck."""
        if self.is_alive and (self.ready or self.starting_seconds > SAFE_TO_SIGNAL_SECONDS):
            os.kill(self.pid, signal.SIGUSR1)

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not condition():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._read_messages()  # the child blocks in sending a long result until it is read
            if self._connection is not None:
                wait([self._connection], min(remaining, EXIT_CODE_SECONDS))
            else:
                time.sleep(min(remaining, POLL_SECONDS))
        self._read_messages()
        return True

    def _read_messages(self) -> None:
        if self._connection is None:
            return
        try:
            while self._connection.poll():
                message = self._connection.recv()
                if message is Notice.BEAT:
                    self._last_beat = time.monotonic()
                elif message is Notice.READY:
                    self._ready_at = time.monotonic()
                elif isinstance(message, Finished):
                    self._finished = message
                elif isinstance(message, Warned):
                    show_warning_of(*message)
                elif isinstance(message, Failure):
                    # The first exception is the cause; others may follow from it.
                    self._failed = self._failed or message
        except (EOFError, OSError):
            self._connection.close()
            self._connection = None

    def _has_ended(self) -> bool:
        if self._exit_code is None and self._process is not None and self._process.has_ended():
            # Kill the group before reaping the child: its pid may be reused afterwards.
            kill_group(self.pid)
            self._exit_code = self._process.wait()
            self._read_messages()
            has_cleaned_up = self._exit_code == 0 and self._finished is not None
            if not has_cleaned_up and not self._is_killed:  # then what it has started may still run
                kill_marked(self._mark)
        return self._exit_code is not None


def kill_all(children: Iterable[Child]) -> None:
    """In the parent: kills children and all that they have started; returns when they have ended."""
    running = [child for child in children if child.is_alive]
    _send_kills(running)
    for child in running:
        child.join(timeout=10)


def kill_children() -> None:
    """In the parent: kills all children of this process and all that they have started, without waiting.
    A signal handler may call this."""
    _send_kills([child for child in list(_started) if child._exit_code is None])


def _send_kills(running: list[Child]) -> None:
    for child in running:
        child._stop_requested = child._is_killed = True
        kill_group(child.pid)
    if running:
        kill_marked(*[child._mark for child in running])


def _describe_exit(exit_code: int) -> str:
    if exit_code == LOST:
        return "ended without a request to stop; the template process had ended before, so why is not known"
    limit = address_space_limit()
    if exit_code >= 0:
        hint = f"; {limit}" if limit else ""
        return f"ended with exit code {exit_code} without a request to stop{hint}"
    name = signal.Signals(-exit_code).name
    hint = "; out of memory?" if name == "SIGKILL" else f"; {limit}" if limit else ""
    return f"ended by signal {-exit_code} ({name}{hint})"


def run_in_child(
    name: str,
    factory: Factory,
    args: tuple[Any, ...] = (),
    timeout: float = 60.0,
    from_template: bool = False,
) -> Any:
    """In the parent: builds an object by `factory(*args, context)` in a new child process, and returns the
    result of the object's `run()`.

    from_template: whether to fork the child from the template process, see ChildOptions.

    Raises ConfigError if the child raises one; Failure if the child fails otherwise, or if building and
    running take more than `timeout` seconds.
    """
    child = Child(name, factory, args, ChildOptions(one_shot=True, from_template=from_template))
    child.start()
    try:
        if not child._wait_for(lambda: child.finished or child.failure is not None, timeout):
            raise Failure(name, f"has not returned after {timeout:g} s")
        if not child.join(END_SECONDS + MORE_SECONDS):
            log.warning("%s has not ended %g s after its work was done, and is killed", name, END_SECONDS)
        if child.failure is not None:
            raise ConfigError(child.failure.text) if child.failure.is_a(ConfigError) else child.failure
        return child.result
    finally:
        child.kill()


def call_in_child(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    timeout: float = 60.0,
    from_template: bool = False,
) -> Any:
    """In the parent: calls `function(*args)` in a new child process, and returns the result.

    For calls that must not happen in this process: loading an engine that cannot be unloaded, or code that
    may crash.

    from_template: whether to fork the child from the template process, see ChildOptions; for calls that
        import torch.

    Raises ConfigError if the function raises one; Failure if the child fails otherwise, or takes more than
    `timeout` seconds.
    """
    return run_in_child(name, _Call, (function, args), timeout, from_template)


class _Call:
    """In the child: the object that `call_in_child` builds. Its `run` returns `function(*args)`."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], context: ChildContext):
        self._function = function
        self._args = args

    def run(self) -> Any:
        return self._function(*self._args)
