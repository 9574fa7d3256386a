"""The child's side of `Child`: what runs in the new process, and what its object sees of it.

Nothing here imports NumPy: the CPU affinity and the environment must be in effect before a library counts the
cores.
"""

import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import BinaryIO, NamedTuple

from sample_factory.runtime import cpu
from sample_factory.runtime.log import LogSettings, log, setup_logging

BEAT_SECONDS = 1.0


class Ready(NamedTuple):
    """Child to parent: the object is built."""


class Finished(NamedTuple):
    """Child to parent: `run` has returned."""

    result: bytes  # cloudpickled


class Failed(NamedTuple):
    """Child to parent: an exception ended the child. Only text, so that the parent needs none of its modules.

    error: the last line of the traceback, e.g. "ValueError: the message".
    message: `str()` of the exception.
    exception_types: qualified names ("module.QualName") of the exception's class and of its base classes.
    cause_types: the same for the exceptions that it was raised from, or while they were handled.
    permanent: whether it was a PermanentFailure.
    """

    error: str
    traceback: str = ""
    message: str = ""
    exception_types: tuple[str, ...] = ()
    cause_types: tuple[str, ...] = ()
    permanent: bool = False


class Beat(NamedTuple):
    """Child to parent: it is not stuck."""


class PermanentFailure(Exception):
    """Raised in a child that would fail again if it were started anew."""


class FactoryNotFound(PermanentFailure):
    """A factory given by its name cannot be resolved."""


class Stop(NamedTuple):
    """Parent to child: set `context.stopping`."""


class Setup(NamedTuple):
    """Parent to child, before anything else is unpickled."""

    name: str
    grace_seconds: float
    logging: LogSettings


class StopFlag:
    """Like threading.Event, but a signal handler may set it, and connection.wait takes it too.

    (To set an Event takes a lock: a handler that interrupts its own thread inside `Event.wait` would hang.)
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
        """Whether it is set within `timeout` seconds (None: however long it takes)."""
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        poller.poll(None if timeout is None else timeout * 1000)
        return self._is_set

    def fileno(self) -> int:
        """Readable once the flag is set."""
        return self._read_fd

    def __del__(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


class ChildContext:
    """In the child: what its object knows of the process around it.

    name: the child's name.
    stopping: set when the parent asks the child to stop or dies, when the child gets SIGTERM, and when
        another thread of the child has raised.
    parent_alive: False once the main process has died.
    """

    def __init__(self, name: str, tell: Callable[[NamedTuple], None] = lambda message: None):
        self.name = name
        self.stopping = StopFlag()
        self.parent_alive = True
        self._tell, self._next_beat = tell, 0.0

    def beat(self) -> None:
        """Says that it is not stuck; to be called again and again: after the first time, silence is noticed.

        Told once a second at most.
        """
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._tell(Beat())

    def keep_going(self) -> bool:
        """False once it should stop; for the `keep_waiting` of a queue."""
        return not self.stopping.is_set()


def child_main(payload_fd: int, connection_fd: int) -> None:
    """In the child: builds the object, runs it, and tells the parent how that went."""
    for fd in (payload_fd, connection_fd):
        # A simulator that held the connection would hide this process's death from the parent.
        os.set_inheritable(fd, False)
    link = _Link(Connection(connection_fd))
    with open(payload_fd, "rb") as payload:
        payload.seek(0)
        pickle.load(payload)  # the header, which the bootstrap has acted upon
        setup: Setup = pickle.load(payload)
        context = ChildContext(setup.name, link.tell)
        _prepare_process(setup, context, link)
        try:
            _build_and_run(payload, context, link)
            exit_code = 0
        except BaseException as error:  # SystemExit too: nobody but the parent ends a child
            link.tell(describe_exception(error))
            exit_code = 1
    _leave(exit_code, context)


def _build_and_run(payload: BinaryIO, context: ChildContext, link: "_Link") -> None:
    import cloudpickle

    # This imports PyTorch where it is needed; Python would search its modules for garbage meanwhile, 0.1 s in
    # vain.
    gc.disable()
    factory, args = pickle.load(payload)
    gc.enable()
    payload.close()
    if isinstance(factory, str):
        factory = resolve_factory(factory)
    body = factory(*args, context)
    link.tell(Ready())
    result = body.run()
    link.tell(Finished(cloudpickle.dumps(result)))


def resolve_factory(path: str) -> Callable:
    """Imports `attr` of `module` for a path "module:attr". Raises FactoryNotFound."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute.isidentifier():
        raise FactoryNotFound(
            f"factory {path!r} should be of the form 'package.module:attribute', with one colon"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise FactoryNotFound(f"factory {path!r}: cannot import {module_name}: {error}") from error
    if attribute not in vars(module):
        raise FactoryNotFound(f"factory {path!r}: {module_name} has no attribute {attribute}")
    factory = vars(module)[attribute]
    if not callable(factory):
        raise FactoryNotFound(
            f"factory {path!r} is a {type(factory).__name__}; it should be a function or a class"
        )
    return factory


def _prepare_process(setup: Setup, context: ChildContext, link: "_Link") -> None:
    # Whether to stop is for the parent to say, not for the terminal. SIGHUP also comes if the parent is
    # killed while this process is stopped; after `stty tostop` a log line would stop it (SIGTTOU).
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: context.stopping.set())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    setup_logging(setup.name, *setup.logging)
    _name_process(setup.name)

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        link.tell(describe_exception(args.exc_value))
        context.stopping.set()

    threading.excepthook = thread_failed
    if os.getsid(0) == os.getpid():
        threading.Thread(target=_pass_niceness, daemon=True).start()
    threading.Thread(target=_obey, args=(link, context, setup.grace_seconds), daemon=True).start()


def _pass_niceness() -> None:
    """The body of a thread."""
    try:
        cpu.pass_niceness_to_session()
    except OSError as error:
        log.warning("Goes on with the same share of the cores as learners: %s", error)


def _obey(link: "_Link", context: ChildContext, grace_seconds: float) -> None:
    """The body of a thread: waits for Stop, and for the end of the parent."""
    try:
        while True:
            link.connection.recv()  # a Stop; nothing else is sent this way
            context.stopping.set()
    except (EOFError, OSError):
        context.parent_alive = False
        context.stopping.set()
    time.sleep(grace_seconds)
    _kill_own_group()


def _leave(exit_code: int, context: ChildContext) -> None:
    sys.stdout.flush()
    if not context.parent_alive:
        # Nobody is left to sweep up the simulators that this process did not close.
        _kill_own_group()
    # Or Python would search all of PyTorch for garbage once more before it ends, 0.4 s in vain.
    gc.freeze()
    sys.exit(exit_code)


def _kill_own_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _name_process(name: str) -> None:
    """What `top` shows; Linux only, 15 characters."""
    if sys.platform == "linux":
        with open("/proc/self/comm", "w") as comm:
            comm.write(name[:15])


def describe_exception(error: BaseException) -> Failed:
    """Returns the exception as text and names."""
    causes = _causes(error)
    return Failed(
        error="".join(traceback.format_exception_only(error)).strip(),
        traceback="".join(traceback.format_exception(error)),
        message=_message(error),
        exception_types=tuple(qualified_name(cls) for cls in type(error).__mro__),
        cause_types=tuple(qualified_name(cls) for cause in causes for cls in type(cause).__mro__),
        permanent=isinstance(error, PermanentFailure),
    )


def qualified_name(cls: type) -> str:
    """Returns the name of a class with its module: "module.QualName"."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _causes(error: BaseException) -> list[BaseException]:
    """Returns the exceptions that a traceback of `error` shows before it, the nearest first."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes[1:]:  # a chain can be a cycle
        causes.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return causes[1:]


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ of user code must not hide that the child failed
        return ""


class _Link:
    """The connection to the parent; several threads may tell it something, one listens."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self._lock = threading.Lock()

    def tell(self, message: NamedTuple) -> None:
        with self._lock:
            try:
                self.connection.send(message)
            except OSError:
                log.error("the main process is gone and cannot be told: %s", "\n".join(map(str, message)))
