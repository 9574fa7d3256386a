"""In the child: what runs in the process of a `Child`, and what its object sees of that process.

Nothing here imports NumPy: the CPU affinity and the environment must be in effect before a library counts the
cores.
"""

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, NamedTuple

from sample_factory.runtime import cpu
from sample_factory.runtime.failures import FactoryNotFound, describe_exception, user_call
from sample_factory.runtime.log import LogSettings, log, log_python_warnings, setup_logging
from sample_factory.runtime.marked_processes import kill_marked
from sample_factory.runtime.registry import WrongPath, import_attribute

BEAT_SECONDS = 1.0
END_SECONDS = 4.0  # for a process to end once its work is done; less than the run gives a worker to stop


class Ready(NamedTuple):
    """Child to parent: the object is built."""


class Finished(NamedTuple):
    """Child to parent: `run` has returned."""

    result: bytes  # cloudpickled


class Beat(NamedTuple):
    """Child to parent: a heartbeat; the child is not stuck."""


class Warned(NamedTuple):
    """Child to parent: a warning for the console."""

    process_name: str  # of the child, or of one that it has started
    text: str


class Stop(NamedTuple):
    """Parent to child: set `context.stopping`."""


class Setup(NamedTuple):
    """Parent to child, before anything else is unpickled."""

    name: str
    mark: str
    grace_seconds: float
    logging: LogSettings


class StopFlag:
    """Like threading.Event, but a signal handler may set it, and multiprocessing.connection.wait accepts it.

    (Setting an Event takes a lock: a handler that interrupts its own thread inside `Event.wait` would hang.)
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_fd, self._write_fd = os.pipe()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.write(self._write_fd, b"!")  # never read, so the other end stays readable

    def wait(self, timeout: float | None = None) -> bool:
        """Returns whether the flag is set within `timeout` seconds (None: waits without a limit)."""
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        poller.poll(None if timeout is None else timeout * 1000)
        return self._is_set

    def fileno(self) -> int:
        """Returns a file descriptor that is readable once the flag is set."""
        return self._read_fd

    def __del__(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


def _discard(message: NamedTuple) -> None:
    pass


class ChildContext:
    """In the child: the object's view of its process.

    name: the child's name.
    stopping: set when the parent asks the child to stop or dies, when the child gets SIGTERM, and when
        another thread of the child has raised.
    parent_alive: False once the main process has died.
    cleanup: closed after the result of `run`, or its exception, has been sent. It has END_SECONDS; an
        exception in it is a failure of the child.
    """

    def __init__(self, name: str, send: Callable[[NamedTuple], None] = _discard):
        """send: sends a message to the parent; by default there is no parent."""
        self.name = name
        self.stopping = StopFlag()
        self.parent_alive = True
        self.cleanup = contextlib.ExitStack()
        self._send = send
        self._next_beat = 0.0  # time.monotonic()

    def beat(self) -> None:
        """Sends a heartbeat to the parent, at most one a second.

        To be called repeatedly: after the first call, the parent regards a child without heartbeats as stuck.
        """
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._send(Beat())

    def keep_going(self) -> bool:
        """Returns False once the child should stop. Fits the parameter `keep_waiting` of queues."""
        return not self.stopping.is_set()


def child_main(payload_fd: int, connection_fd: int) -> None:
    """Builds the object, runs it, and sends the outcome to the parent. Does not return."""
    for fd in (payload_fd, connection_fd):
        # A simulator that held the connection would hide this process's death from the parent.
        os.set_inheritable(fd, False)
    link = _ParentLink(Connection(connection_fd))
    with open(payload_fd, "rb") as payload:
        payload.seek(0)
        pickle.load(payload)  # the header, which start_child.py has applied
        setup: Setup = pickle.load(payload)
        context = ChildContext(setup.name, link.send)
        _prepare_process(setup, context, link)
        exit_code = _attempt(link, _build_and_run, payload, context, link)
    threading.Thread(target=_watch_end, args=(exit_code, setup.mark), daemon=True).start()
    exit_code = _attempt(link, context.cleanup.close) or exit_code
    _exit(exit_code, context, setup.mark)


def _attempt(link: "_ParentLink", call: Callable[..., None], *args: Any) -> int:
    """Calls a function, and returns 0; if it raises, sends the exception to the parent, and returns 1."""
    try:
        call(*args)
        return 0
    except BaseException as error:  # SystemExit too: only the parent decides when a child ends
        link.send(describe_exception(error))
        return 1


def _build_and_run(payload: BinaryIO, context: ChildContext, link: "_ParentLink") -> None:
    import cloudpickle

    # This imports PyTorch where it is needed; searching its modules for garbage meanwhile takes 0.1 s.
    gc.disable()
    factory, args = pickle.load(payload)
    gc.enable()
    payload.close()
    if isinstance(factory, str):
        factory = resolve_factory(factory)
    body = factory(*args, context)
    link.send(Ready())
    result = body.run()
    link.send(Finished(cloudpickle.dumps(result)))


def resolve_factory(path: str) -> Callable[..., Any]:
    """Imports `attr` of `module` for a path "module:attr". Raises FactoryNotFound."""
    try:
        factory: object = import_attribute(path)
    except ImportError as error:
        raise FactoryNotFound(f"factory {path!r}: cannot import {path.partition(':')[0]}: {error}") from error
    except WrongPath as error:
        raise FactoryNotFound(f"factory {path!r}: {error}") from error
    if not callable(factory):
        raise FactoryNotFound(
            f"factory {path!r} is a {type(factory).__name__}; it should be a function or a class"
        )
    return factory


def _prepare_process(setup: Setup, context: ChildContext, link: "_ParentLink") -> None:
    # The parent decides when to stop, not the terminal. SIGHUP also arrives if the parent is killed while
    # this process is stopped; after `stty tostop` a log line would stop it (SIGTTOU).
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: context.stopping.set())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    setup_logging(setup.name, *setup.logging, lambda name, text: link.send(Warned(name, text)))
    log_python_warnings()
    _name_process(setup.name)
    # Registered first, hence called last: libraries may end by themselves what they have started.
    atexit.register(kill_marked, setup.mark)

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            link.send(describe_exception(args.exc_value))
        context.stopping.set()

    threading.excepthook = thread_failed
    if os.getsid(0) == os.getpid():
        threading.Thread(target=_pass_niceness, daemon=True).start()
    threading.Thread(target=_watch_parent, args=(link, context, setup), daemon=True).start()


def _pass_niceness() -> None:
    """Runs in a thread, since it may take seconds."""
    try:
        cpu.pass_niceness_to_session()
    except OSError as error:
        log.warning("This process gets the same share of the cores as learners: %s", error)


def _watch_parent(link: "_ParentLink", context: ChildContext, setup: Setup) -> None:
    """Runs in a thread: waits for Stop and for the end of the parent."""
    try:
        while True:
            link.connection.recv()  # a Stop; the parent sends nothing else
            context.stopping.set()
    except (EOFError, OSError):
        context.parent_alive = False
        context.stopping.set()
    time.sleep(setup.grace_seconds)
    _kill_own_group(setup.mark)


def _watch_end(exit_code: int, mark: str) -> None:
    """Runs in a thread: ends the process if it has not ended END_SECONDS after its work, and logs why."""
    time.sleep(END_SECONDS)
    log.warning("Ended by force, %g s after its work was done: %s", END_SECONDS, _why_not_ended())
    kill_marked(mark)
    os._exit(exit_code)


def _why_not_ended() -> str:
    """Returns what the main thread waits for: a call of user code, other threads, or functions of atexit."""
    calls = {ident: user_call(frame) for ident, frame in sys._current_frames().items()}
    main = threading.main_thread()
    if call := calls.get(main.ident or 0):
        return f"{call} does not return"
    for thread in threading.enumerate():
        if not thread.daemon and thread is not main:
            place = calls.get(thread.ident or 0) or "code of a library"
            return (
                f"its thread {thread.name!r} is still in {place}; `close` of the env should end it, or it "
                "should be a daemon thread"
            )
    return "a function registered with atexit does not return"


def _exit(exit_code: int, context: ChildContext, mark: str) -> None:
    sys.stdout.flush()
    if not context.parent_alive:
        # The parent would kill simulators that this process has not closed.
        _kill_own_group(mark)
    # Otherwise Python searches all of PyTorch for garbage once more before it ends, which takes 0.4 s.
    gc.freeze()
    sys.exit(exit_code)


def _kill_own_group(mark: str) -> None:
    kill_marked(mark)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _name_process(name: str) -> None:
    """Sets the name that `top` shows. Linux only, at most 15 characters."""
    if sys.platform == "linux":
        with open("/proc/self/comm", "w") as comm:
            comm.write(name[:15])


class _ParentLink:
    """The connection to the parent. Several threads may send; one receives."""

    def __init__(self, connection: "Connection[Any, Any]"):
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: NamedTuple) -> None:
        """Sends a message to the parent; logs it if the parent has died."""
        try:
            with self._lock:
                self.connection.send(message)
        except OSError:
            # Without the lock: another thread may hold that of the log while it sends a warning.
            text = "\n".join(map(str, message))
            log.error("The main process has died, so this message does not reach it: %s", text)
