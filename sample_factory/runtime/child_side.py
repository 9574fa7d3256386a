"""In the child: runs the object of a `Child`, and gives it a `ChildContext`.

This module must not import NumPy: the CPU affinity and the environment have to be in effect before a library
counts the cores.
"""

import atexit
import contextlib
import enum
import faulthandler
import gc
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, NamedTuple

from sample_factory.runtime import cpu
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log, log_python_warnings, setup_logging
from sample_factory.runtime.programs import kill_marked
from sample_factory.runtime.registry import resolve

BEAT_SECONDS = 1.0
# Time for a process to end once its work is done. Less than a run gives its workers to stop.
END_SECONDS = 4.0


class Notice(enum.Enum):
    """Messages between parent and child that carry no data. The parent sends STOP; the child sends READY and
    BEAT (a heartbeat)."""

    STOP = "set context.stopping"
    READY = "the object is built"
    BEAT = "a heartbeat: the child is not stuck"


class Finished(NamedTuple):
    """Message from child to parent: the `run` method of the child's object has returned `result`, here
    pickled."""

    result: bytes  # cloudpickled


class Warned(NamedTuple):
    """Message from child to parent: a warning, which the parent shows on the console."""

    process_name: str  # of the child, or of a process that it has started
    text: str


Message = Finished | Warned | Failure | Notice

# To the parent of this process, if it is a child.
_link: "_ParentLink | None" = None


class StopFlag:
    """A flag like threading.Event that signal handlers may set.
    (Setting a threading.Event takes a lock: a signal handler that interrupts `Event.wait` would deadlock.)"""

    def __init__(self) -> None:
        self._is_set = False
        self._read_fd, self._write_fd = os.pipe()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.write(self._write_fd, b"!")  # never read, so the pipe stays readable

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the flag is set, at most `timeout` seconds (None: no limit). Returns whether it is."""
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        poller.poll(None if timeout is None else timeout * 1000)
        return self._is_set

    def __del__(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


class ChildContext:
    """In the child: tells the child's object when to stop, and sends heartbeats. It is the last argument of
    the factory that makes the object.

    name: the child's name.
    stopping: set when the parent asks the child to stop, when the parent dies, when the child receives
        SIGTERM, and when another thread of the child raises.
    parent_alive: False once the main process has died.
    cleanup: closed after the result or the exception of `run` has been sent. Closing it may take END_SECONDS;
        an exception in it is a failure of the child.
    """

    def __init__(self, name: str, send: Callable[[Message], None] = lambda message: None):
        """Makes a context that sends its messages by the function `send`, which by default discards them."""
        self.name = name
        self.stopping = StopFlag()
        self.parent_alive = True
        self.cleanup = contextlib.ExitStack()
        self._send = send
        self._next_beat = 0.0  # time.monotonic()

    def beat(self) -> None:
        """Sends a heartbeat to the parent, at most one per second.

        An object that calls this once must go on calling it: without heartbeats the parent regards it as
        stuck.
        """
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._send(Notice.BEAT)

    def keep_going(self) -> bool:
        """Returns True until the child should stop. Suits the parameter `keep_waiting` of queues."""
        return not self.stopping.is_set()


def child_main(settings: Mapping[str, Any], payload: BinaryIO, connection_fd: int) -> None:
    """In the child: builds the child's object, runs it, and sends the outcome to the parent. Ends the
    process.

    settings: the fields of ChildOptions, and "name", "mark", "path" and the arguments of `setup_logging`, as
        `launch` writes them.
    payload: file with the pickled (factory, args); closed here.
    connection_fd: file descriptor of the connection to the parent.
    """
    global _link
    for fd in (payload.fileno(), connection_fd):
        # A simulator that inherited the connection would hide this process's death from the parent.
        os.set_inheritable(fd, False)
    link = _link = _ParentLink(Connection(connection_fd), settings["name"])
    context = ChildContext(settings["name"], link.send)
    exit_code = _attempt(link, _prepare_process, settings, context, link) or _attempt(
        link, _build_and_run, payload, context, link
    )
    watch = threading.Thread(target=_watch_end, args=(exit_code, settings["mark"]), daemon=True)
    exit_code = _attempt(link, watch.start) or _attempt(link, context.cleanup.close) or exit_code
    sys.stdout.flush()
    if not context.parent_alive:  # so nobody else kills simulators that this process has not closed
        _kill_own_group(settings["mark"])
    # Without this, Python searches all of PyTorch for garbage once more before it ends, which takes 0.4 s.
    gc.freeze()
    sys.exit(exit_code)


def pass_on(error: BaseException) -> None:
    """Re-raises a KeyboardInterrupt or SystemExit that user code has raised in the main process, where Ctrl+C
    and `sys.exit` must keep their effect.

    Returns for any other exception. Always returns in a child, where KeyboardInterrupt and SystemExit are
    errors of user code.
    """
    if _link is None and not isinstance(error, Exception):
        raise error


def _attempt(link: "_ParentLink", call: Callable[..., None], *args: Any) -> int:
    """Calls a function and returns 0. If it raises, sends the exception to the parent and returns 1."""
    try:
        call(*args)
        return 0
    except BaseException as error:  # SystemExit too: only the parent decides when a child ends
        link.send(Failure.of(error, link.name))
        return 1


def _build_and_run(payload: BinaryIO, context: ChildContext, link: "_ParentLink") -> None:
    import cloudpickle

    # Both may import PyTorch. Searching its modules for garbage meanwhile would take 0.1 to 0.3 s.
    gc.disable()
    with payload:
        factory, args = pickle.load(payload)
    factory = resolve(factory)
    gc.enable()
    body = factory(*args, context)
    link.send(Notice.READY)
    link.send(Finished(cloudpickle.dumps(body.run())))


def _prepare_process(settings: Mapping[str, Any], context: ChildContext, link: "_ParentLink") -> None:
    # The parent decides when to stop, not the terminal. SIGHUP also arrives if the parent is killed while
    # this process is suspended; after `stty tostop` a log line would suspend it (SIGTTOU).
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: context.stopping.set())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)

    def show_warning(process_name: str, text: str) -> None:
        link.send(Warned(process_name, text))

    how = {name: settings[name] for name in ("log_file", "in_notebook")}
    setup_logging(context.name, level=settings["log_level"], show_warning=show_warning, **how)
    log_python_warnings()
    # What `ps -e` and `top` show, e.g. "rollout_0"; Linux keeps 15 characters. Some sandboxes forbid it.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(context.name.replace("_worker", ""))
    # Registered first, hence called last: libraries may end what they have started by themselves.
    atexit.register(kill_marked, settings["mark"])

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            link.send(Failure.of(args.exc_value, link.name))
        context.stopping.set()

    threading.excepthook = thread_failed
    if os.getsid(0) == os.getpid():
        threading.Thread(target=_pass_niceness, daemon=True).start()
    threading.Thread(target=_watch_parent, args=(settings, context, link), daemon=True).start()


def _pass_niceness() -> None:
    """Sets the nice value of this process's session to the nice value of the process; logs a warning if the
    system does not permit it. Runs in a thread, since the change may take seconds."""
    try:
        cpu.pass_niceness_to_session()
    except OSError as error:
        log.warning("This process gets the same share of the cores as learners: %s", error)


def _watch_parent(settings: Mapping[str, Any], context: ChildContext, link: "_ParentLink") -> None:
    """Runs in a thread: sets `context.stopping` when the parent asks to stop or dies. `grace_seconds` after
    the parent's death, kills this process and all processes that it has started."""
    try:
        while True:
            link.connection.recv()  # always Notice.STOP
            context.stopping.set()
    except (EOFError, OSError):
        context.parent_alive = False
        context.stopping.set()
    time.sleep(settings["grace_seconds"])
    _kill_own_group(settings["mark"])


def _watch_end(exit_code: int, mark: str) -> None:
    """Runs in a thread: prints the stacks of all threads and ends this process if it still runs END_SECONDS
    after its work was done."""
    time.sleep(END_SECONDS)
    text = (
        "Ended by force, %g s after its work was done. `close` of an env should return, and end all threads "
    )
    log.warning(text + "that are no daemon threads. The stacks of all threads are on stderr", END_SECONDS)
    faulthandler.dump_traceback()
    kill_marked(mark)
    os._exit(exit_code)


def _kill_own_group(mark: str) -> None:
    kill_marked(mark)
    os.killpg(os.getpgrp(), signal.SIGKILL)


class _ParentLink:
    """In the child: the connection to the parent. Several threads send messages; one thread receives them."""

    def __init__(self, connection: "Connection[Any, Any]", name: str):
        """Wraps a connection to the parent.

        name: name of this child, which the failures that it sends contain.
        """
        self.connection = connection
        self.name = name
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Sends a message to the parent. If the parent has died, logs the content of the message."""
        try:
            with self._lock:
                self.connection.send(message)
        except OSError:
            # After releasing the lock: another thread may hold the log's lock while it sends a warning.
            if not isinstance(message, Notice):
                text = f"{message}\n{message.traceback}" if isinstance(message, Failure) else message
                log.error("The main process has died, so this message does not reach it: %s", text)
