"""Failures as data: what a child sends about an exception, what the parent raises, what a user reads."""

import contextlib
import errno
import resource
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = str(Path(__file__).parents[1])
# Libraries between this package and a user's code, by the name of their folder.
LIBRARIES = ("gymnasium", "pettingzoo", "numpy", "torch", "cloudpickle")
MAX_FRAMES = 8  # of a short traceback
MAIN_LOOP = "main_loop"
ADVICE = "allow more, or use fewer workers"
NO_THREAD = "can't start new thread"
START_PROGRAM = "_execute_child"  # of subprocess
# Messages of the dynamic linker, the system, Python and PyTorch when memory is short.
NO_ROOM = (
    "failed to map segment",
    "annot allocate memory",
    "can't allocate memory",
    NO_THREAD,
)


class Explained(Exception):
    """An exception with a complete message: what is wrong, and what would be right.

    Users see only the message, in one line, without a traceback.
    """


class ConfigError(Explained, ValueError):
    """Raised for bad input of the user; the message says what is wrong and what would be right.

    For example:

        try:
            sample_factory.run("CartPole-v1", "cartpole", gama=0.9)
        except sample_factory.ConfigError as error:
            print(error)  # ... did you mean gamma?
    """


class CommandFailed(Explained, RuntimeError):
    """A command cannot do its work. Bad input is a ConfigError instead."""


class FailsAgain(Exception):
    """Raised in a child that would fail in the same way if it were started again."""


class PermanentFailure(Explained, FailsAgain):
    """A FailsAgain with a complete message."""


class PeerLost(Explained, RuntimeError):
    """Raised in a child when another child has broken off the connection between them.

    If that child has failed, its failure is the reason, see `Supervisor.check`.
    """


class Failed(NamedTuple):
    """Child to parent: an exception ended the child. Only text, so that the parent needs no module of it.

    error: one line, see `one_line`.
    traceback: in full. short_traceback: see `short_traceback`.
    caller: name of the outermost function of user code in the traceback, e.g. "reset"; empty if none.
    message: `str()` of the exception.
    exception_types: names "module.QualName" of the exception's class and of its base classes.
    cause_types: the same for the exceptions that it was raised from, or while they were handled.
    explained: whether it is an Explained, so that users see the message alone.
    permanent: whether it is a FailsAgain.
    """

    error: str
    traceback: str = ""
    short_traceback: str = ""
    caller: str = ""
    message: str = ""
    exception_types: tuple[str, ...] = ()
    cause_types: tuple[str, ...] = ()
    explained: bool = False
    permanent: bool = False


class ChildFailed(Exception):
    """A child could not be built, raised, or ended without being asked to; or the main loop raised.

    name: the name of the child, or MAIN_LOOP.
    reason: one line.
    message: `str()` of the exception that ended the child; the reason if no exception did.
    traceback, short_traceback, caller, is_explained: see Failed; empty if no exception ended the child.
    """

    def __init__(self, name: str, reason: str, failed: Failed | None = None):
        """failed: describes the exception that ended the child; None if no exception did."""
        failed = failed or Failed(reason, message=reason)
        super().__init__(f"{name}: {reason}\n{failed.traceback}".strip())
        self.name = name
        self.reason = reason
        self.message = failed.message
        self.traceback = failed.traceback
        self.short_traceback = failed.short_traceback
        self.caller = failed.caller
        self.is_explained = failed.explained
        self._exception_types = frozenset(failed.exception_types)
        self._cause_types = frozenset(failed.cause_types)

    def is_a(self, exception: type[BaseException]) -> bool:
        """Returns whether the exception that ended the child is an instance of this class."""
        return qualified_name(exception) in self._exception_types

    def caused_by(self, name: str) -> bool:
        """Returns whether the exception that ended the child, or one that led to it (see Failed.cause_types),
        is an instance of a class. name: "module.QualName"; the module need not be imported."""
        return name in self._exception_types | self._cause_types


@contextlib.contextmanager
def collected(failures: list[ChildFailed]) -> Iterator[None]:
    """Returns a block that adds an exception to `failures` instead of raising it: what follows must still be
    done, since workers must stop and learners must save."""
    try:
        yield
    except ChildFailed as failure:
        failures.append(failure)
    except Exception as error:  # any error; the run ends with it
        failed = describe_exception(error)
        failures.append(ChildFailed(MAIN_LOOP, failed.error, failed))


def describe_exception(error: BaseException) -> Failed:
    """Returns the exception as text and names."""
    permanent = isinstance(error, FailsAgain)
    limit = exceeded_limit(error)
    if limit:  # there is hardly room for a traceback
        return Failed(limit, message=limit, explained=True, permanent=permanent)
    frames = _raised_in(error)
    return Failed(
        error=one_line(error),
        traceback="".join(traceback.format_exception(error)),
        short_traceback=short_traceback(error),
        caller=frames[0].name if frames else "",
        message=_message(error),
        exception_types=tuple(qualified_name(cls) for cls in type(error).__mro__),
        cause_types=tuple(qualified_name(cls) for cause in _causes(error) for cls in type(cause).__mro__),
        explained=isinstance(error, Explained),
        permanent=permanent,
    )


def exceeded_limit(error: BaseException) -> str:
    """Returns one line if a limit of this process caused the exception: of the address space (`ulimit -v`),
    of open files (`-n`), or of processes and threads (`-u`). Returns "" otherwise.

    Python reports a library that does not fit into memory as an ImportError.
    """
    limit = address_space_limit()
    for cause in reversed([error, *_causes(error)]):
        message = _message(cause)
        if limit and (isinstance(cause, MemoryError) or any(text in message for text in NO_ROOM)):
            return f"out of memory: {type(cause).__name__}{': ' if message else ''}{message}; {limit}"
        if _raised_in(cause):  # user code may have a limit of its own, or leak files
            continue
        if isinstance(cause, OSError) and cause.errno == errno.EMFILE:
            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return f"too many open files: a process may have {files} (ulimit -n); {ADVICE}"
        if NO_THREAD in message or (isinstance(cause, BlockingIOError) and _raised_by(cause, START_PROGRAM)):
            processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
            number = "no more" if processes == resource.RLIM_INFINITY else f"{processes} (ulimit -u)"
            return f"too many processes or threads: this account may have {number}; {ADVICE}"
    return ""


def _raised_by(error: BaseException, function: str) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].name == function


def address_space_limit() -> str:
    """Returns a text about the limit of this process's address space (`ulimit -v`); empty without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"the address space is limited to {limit / 1e6:,.0f} MB (ulimit -v); it should be unlimited"


def one_line(error: BaseException) -> str:
    """Returns an exception in one line with the place in user code that raised it.

    E.g. "LookupError: no level 7 (my_env.py:34)". For an Explained: its message, with the place if it was
    raised from an exception of user code. For a ChildFailed: its reason.
    """
    if isinstance(error, ChildFailed):
        return error.reason
    message = " ".join(_message(error).split())
    if isinstance(error, Explained):
        cause = error.__cause__
        place = _place(cause) if cause is not None and _raised_in(cause) else ""
        return f"{message} ({place})" if place and place not in message else message
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    if isinstance(error, SyntaxError):
        return text  # contains the place
    return f"{text} ({_place(error)})" if error.__traceback__ is not None else text


def short_traceback(error: BaseException) -> str:
    """Returns the traceback with the frames of user code only; all frames if there are none, since then the
    fault is in this package.

    For an Explained: the short traceback of the exception of user code that it was raised from; empty if
    there is none.
    """
    if isinstance(error, Explained):
        cause = error.__cause__
        if cause is None or isinstance(cause, Explained) or not _raised_in(cause):
            return ""
        return short_traceback(cause)
    frames = _raised_in(error)[-MAX_FRAMES:]
    if not frames:
        return "".join(traceback.format_exception(error)).rstrip()
    lines = ["Traceback (frames of user code):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _place(error: BaseException) -> str:
    """Returns file and line of the innermost frame of user code; of the innermost frame if there is none."""
    frames = _raised_in(error) or traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def ends_in_user_code(error: BaseException) -> bool:
    """Returns whether user code has raised the exception itself, and not something that it has called."""
    stack = traceback.extract_tb(error.__traceback__)
    return bool(stack) and not _is_internal(stack[-1].filename)


def _raised_in(error: BaseException) -> list[traceback.FrameSummary]:
    return _user_frames(traceback.extract_tb(error.__traceback__))


def _user_frames(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Returns the frames of user code: outside of this package, its libraries and the standard library, and
    without the script that called this package. If there are none, keeps the frames of libraries, unless
    the innermost frame is of this package: then nothing outside of it is at fault."""
    first = next((i for i, frame in enumerate(stack) if frame.filename.startswith(f"{PACKAGE}/")), 0)
    frames = [frame for frame in stack[first:] if not _is_internal(frame.filename)]
    own = [frame for frame in frames if not set(LIBRARIES) & set(Path(frame.filename).parts)]
    is_own_fault = bool(stack) and stack[-1].filename.startswith(f"{PACKAGE}/")
    return own if own or is_own_fault else frames


def _is_internal(file: str) -> bool:
    """Returns whether a file belongs to this package or to the standard library."""
    is_standard = file.startswith(f"{sysconfig.get_paths()['stdlib']}/") and "-packages" not in file
    return is_standard or file.startswith((f"{PACKAGE}/", "<frozen"))


def qualified_name(cls: type) -> str:
    """Returns "module.QualName" of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _causes(error: BaseException) -> list[BaseException]:
    """Returns the exceptions that a traceback shows before `error`, the nearest first."""
    chain = [error]
    while True:
        last = chain[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or any(cause is known for known in chain):  # the chain may be a cycle
            return chain[1:]
        chain.append(cause)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ of user code must not hide that the child failed
        return ""
