"""Starts children, watches them, stops them."""

import collections
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from sample_factory.runtime.child import DUMP_SECONDS, Child, kill_all, kill_children
from sample_factory.runtime.failures import Failure, PeerLost
from sample_factory.runtime.log import log

POLL_SECONDS = 0.01
# GNU `timeout` signals its child and then the child's group, and some supervisors repeat a signal.
REPEAT_SECONDS = 1.0
STDERR = 2
# To wait for the failure behind a lost connection: a process that ends closes its connections first, and on a
# busy machine the system reports its end much later.
PEER_SECONDS = 3.0
GAP_SECONDS = 30.0  # between two checks: after a longer time, the machine or the run was suspended
PATIENCE_SECONDS = 2.0  # how long children may take to stop before the log names them


class Limits(NamedTuple):
    """Limits beyond which a child counts as stuck, or its deaths end the run.

    deaths: more consecutive deaths of one restartable child than this end the run.
    useful_seconds: the count of deaths starts anew for a child that was at work for longer than this.
    start_seconds: a child that takes longer than this to become ready is stuck.
    silent_seconds: a child that sends heartbeats (`ChildContext.beat`) is stuck after this time without one.
    """

    deaths: int = 5
    useful_seconds: float = 24.0
    start_seconds: float = math.inf
    silent_seconds: float = math.inf

    def why_stuck(self, child: Child) -> str:
        """Returns the reason why a child counts as stuck, for a message; "" if the child is not stuck."""
        if child.silent_seconds > self.silent_seconds:
            limit = f"{self.silent_seconds:g} s (--heartbeat_reporting_interval)"
            return f"was stuck: no sign of life for {limit}"
        if child.starting_seconds > self.start_seconds:
            return f"not ready after {self.start_seconds:g} s"
        return ""


class Suspensions:
    """Detects that this process, and so probably its children, was suspended for a while, so that no child
    counts as stuck for this reason."""

    def __init__(self, limits: Limits):
        self._limit = min(GAP_SECONDS, limits.silent_seconds / 2)
        self._checked_at: float | None = None

    def check(self) -> float:
        """Returns the seconds since the last call if this process was suspended meanwhile; otherwise 0.

        Must be called in every turn of the main loop. A gap counts as a suspension if it is longer than
        GAP_SECONDS, or than half of `silent_seconds` if that is less.
        """
        now = time.monotonic()
        gap = 0.0 if self._checked_at is None else now - self._checked_at
        self._checked_at = now
        return gap if gap > self._limit else 0.0


class Supervisor:
    """In the parent: starts and watches all children of the run. Promises:

    1. `check` returns the restartable children that have died, and raises the failure of any other child. A
       child that dies too often, or would fail again in the same way, is no longer restartable. A child that
       is stuck is killed and counts as dead.
    2. Leaving the `with` block kills all remaining children and whatever they have started.
    """

    def __init__(
        self,
        children: Iterable[Child],
        restartable: Iterable[Child] = (),
        limits: Limits = Limits(),
    ):
        """Makes a supervisor of children that are not started yet, and that must have different names.

        restartable: children that may die without ending the run.
        """
        self._children = {child.name: child for child in children}
        self._restartable = {child.name for child in restartable}
        self._limits = limits
        self._deaths: dict[str, int] = collections.defaultdict(int)  # in a row
        self._suspensions = Suspensions(limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        kill_all(self.children)

    @property
    def children(self) -> list[Child]:
        """Returns the current children: a child that was restarted is replaced by its successor."""
        return list(self._children.values())

    @property
    def is_ready(self) -> bool:
        """Whether all children are ready."""
        return all(child.ready for child in self.children)

    def start_all(self) -> None:
        """Starts all children and returns without waiting for them."""
        # Children that are forked from the template come last: they wait for its imports.
        for child in sorted(self.children, key=lambda child: child.options.from_template):
            child.start()

    def check(self, restarts: bool = True) -> dict[Child, Failure]:
        """Kills children that are stuck, and returns the restartable children that have died, each with its
        failure. The caller restarts them.

        restarts: False, e.g. while the run starts: a restartable child that dies before it was ever ready
            counts like any other child.

        Raises the Failure of a child that is not restartable. If this failure is a PeerLost, waits up to
        PEER_SECONDS for the failure of the child at the other end of the connection, and raises that failure
        instead.
        """
        if gap := self._suspensions.check():
            for child in self.children:
                child.excuse(gap)
        dead = {}
        for child in self.children:
            reason = self._limits.why_stuck(child)
            if reason:
                text = "%s %s; it is killed after the stacks of its threads are printed to stderr"
                log.error(text, child.name, reason)
                child.kill_stuck(reason)
            failure = child.failure
            if failure is None:
                continue
            may_die = restarts or child.ready or self._deaths[child.name] > 0
            if not may_die or child.name not in self._restartable or failure.permanent:
                raise self._reason(failure)
            # A child that has raised may still be closing simulators, with which a successor could collide.
            child.kill()
            self._count_death(child, failure)
            dead[child] = failure
        return dead

    def _reason(self, failure: Failure) -> Failure:
        """Returns the failure that caused `failure`, if `failure` is a PeerLost; otherwise `failure`.
        Waits up to PEER_SECONDS for the cause."""
        deadline = time.monotonic() + PEER_SECONDS
        while failure.is_a(PeerLost) and time.monotonic() < deadline:
            lasting = (child.failure for child in self.children if child.name not in self._restartable)
            reasons = (other for other in lasting if other is not None and not other.is_a(PeerLost))
            if reason := next(reasons, None):
                return reason
            time.sleep(POLL_SECONDS)
        return failure

    def _count_death(self, child: Child, failure: Failure) -> None:
        limits = self._limits
        in_a_row = 0 if child.useful_seconds > limits.useful_seconds else self._deaths[child.name]
        self._deaths[child.name] = in_a_row + 1
        if in_a_row >= limits.deaths:
            reason = f"died {in_a_row + 1} times in a row, each within {limits.useful_seconds:g} s of use"
            raise Failure(child.name, f"{reason}; the last time: {failure.message}")

    def restart(self, child: Child) -> Child:
        """Starts and returns the successor of a child that `check` has returned; it is not ready yet.
        The caller must first reclaim the shared resources that the dead child held."""
        successor = child.make_successor()
        self._children[child.name] = successor
        successor.start()
        return successor


def stop_all(
    children: Sequence[Child],
    grace_seconds: float,
    describe: Callable[[Child], str] = lambda child: child.name,
    dump_stacks: bool = False,
) -> tuple[list[str], dict[str, Failure]]:
    """Asks children to stop; kills those that run after `grace_seconds`.

    A child that is not ready has nothing to save, and is killed at once. Returns (names of the children that
    did not stop in time, name of a child -> its failure while it was stopping).

    describe: returns, for the log, the name of a child that does not stop and what it is busy with.
    dump_stacks: whether a child prints the stacks of its threads before it is killed.
    """
    deadline = time.monotonic() + grace_seconds
    for child in children:
        child.stop()
    kill_all(child for child in children if not child.ready)
    running = _still_running(children, min(PATIENCE_SECONDS, grace_seconds))
    if running:
        seconds = max(0.0, deadline - time.monotonic())
        log.info("Waiting up to %.0f s for %s", seconds, ", ".join(map(describe, running)))
        running = _still_running(running, seconds)
    if running:
        names = ", ".join(map(describe, running))
        log.warning("Not stopped within %g s, and killed: %s", grace_seconds, names)
    for child in running if dump_stacks else ():  # one by one, so that their lines do not mix
        child.dump_stacks()
        child.join(DUMP_SECONDS)
    kill_all(running)
    failures = {child.name: child.failure for child in children if not child.failed_before_stop}
    failed = {name: failure for name, failure in failures.items() if failure is not None}
    return [child.name for child in running], failed


def _still_running(children: Sequence[Child], timeout: float) -> list[Child]:
    """Waits at most `timeout` seconds for the children to end; returns the children that still run."""
    deadline = time.monotonic() + timeout
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
    return [child for child in children if child.is_alive]


class StopRequested(BaseException):
    """Raised by a `StopSignals.interrupting` block when a signal arrives before or within the block.
    A BaseException, like KeyboardInterrupt, so that code that catches the exceptions of user code lets it
    pass."""


class StopSignals:
    """In the parent, as a `with` block: turns SIGINT, SIGTERM and SIGHUP into a request to stop. Promises:

    1. The first signal is only recorded: `requested` holds its number.
    2. Signals within REPEAT_SECONDS of the first signal belong to the same request.
    3. A later signal kills all children, prints what is lost, and ends this process with exit code 128 +
       signal number. With `keeps_process`, a later SIGINT raises KeyboardInterrupt instead.
    4. A signal that was ignored before the block (nohup ignores SIGHUP) stays ignored.
    5. The previous handlers are restored after the block. Outside of the main thread the block does nothing.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, describe_loss: Callable[[], str] = lambda: "", keeps_process: bool = False):
        """Makes a block that is not entered yet.

        describe_loss: returns a sentence that says what is lost if the run ends at once.
        keeps_process: whether the process has work besides the run, e.g. in a notebook.
        """
        self.requested: int | None = None
        self._describe_loss = describe_loss
        self._keeps_process = keeps_process
        self._requested_at = 0.0
        self._interrupts = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Returns a block in which the first signal raises StopRequested. Entering the block after a signal
        raises StopRequested too.

        For calls that wait without checking `requested`.
        """
        self._interrupts = True
        try:
            if self.requested is not None:
                raise StopRequested
            yield
        finally:
            self._interrupts = False

    def _handle(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested = number
            self._requested_at = now
            if self._interrupts:
                raise StopRequested
        elif now - self._requested_at >= REPEAT_SECONDS:
            self._end_at_once(number)

    def _end_at_once(self, number: int) -> None:
        text = f"{signal.Signals(number).name} received again: ended at once. {self._describe_loss()}".strip()
        if self._keeps_process and number == signal.SIGINT:
            kill_children()
            raise KeyboardInterrupt(text)
        try:
            kill_children()
            # Not through the log, which the signal may have interrupted.
            os.write(STDERR, f"\n{text}\n".encode(errors="backslashreplace"))
        finally:
            os._exit(128 + number)
