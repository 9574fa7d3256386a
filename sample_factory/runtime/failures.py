"""Failures as data: what a child sends about an exception, what the parent raises, what a user reads."""

import contextlib
import copy
import resource
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

PACKAGE = str(Path(__file__).parents[1])
# Libraries between this package and a user's code, by the name of their folder.
LIBRARIES = ("gymnasium", "pettingzoo", "numpy", "torch", "cloudpickle")
MAX_FRAMES = 8  # of a short traceback
MAIN_LOOP = "main_loop"
# Messages of the dynamic linker, the system, Python and PyTorch when memory is short.
NO_ROOM = ("failed to map segment", "annot allocate memory", "can't allocate memory")
# Messages of other limits -> what to do about them.
LIMITS = {
    "Too many open files": "allow more (ulimit -n), or use fewer workers",
    "can't start new thread": "allow more processes and threads (ulimit -u), or use fewer workers",
}


class Explained(Exception):
    """An exception with a complete message: what is wrong, and what would be right.

    Users see only the message, in one line, without a traceback.
    permanent: whether a process that raises the exception would raise it again after a restart.
    """

    permanent = True


class ConfigError(Explained, ValueError):
    """Raised for bad input of the user; the message says what is wrong and what would be right.

    For example:

        try:
            sample_factory.run("CartPole-v1", "cartpole", gama=0.9)
        except sample_factory.ConfigError as error:
            print(error)  # ... did you mean gamma?
    """


class CommandFailed(Explained, RuntimeError):
    """Raised by a command that cannot do its work for a reason outside its input, e.g. too little memory.
    Bad input is a ConfigError instead."""

    permanent = False


class PeerLost(Explained, RuntimeError):
    """Raised in a child whose connection to another child is lost.
    If the other child has failed, `Supervisor.check` reports its failure instead."""


class Failure(Explained):
    """Describes why an env, a process or the main loop has failed; `str(failure)` is one line.

    A child sends its failure to its parent. A Failure holds only text, so that the parent need not be able to
    import the class of the exception that caused the failure.

    where: what has failed, e.g. "env 'my_maze'", or the name of a child; empty if the message says it.
    message: what happened, in one line.
    text: `str()` of the exception that caused the failure; equal to `message` if there was no exception.
    traceback: full traceback of this exception; empty without an exception.
    short_traceback: the frames of user code in it, see the function `short_traceback`.
    """

    def __init__(self, where: str, message: str, permanent: bool = False):
        super().__init__(where, message, permanent)
        self.where = where
        self.message = message
        self.permanent = permanent
        self.text = message
        self.traceback = ""
        self.short_traceback = ""
        # Names "module.QualName" of the exception's classes, and of those of its causes too.
        self._types: frozenset[str] = frozenset()
        self._types_of_causes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    @classmethod
    def of(cls, error: BaseException, where: str, message: str = "", permanent: bool | None = None) -> Self:
        """Returns a Failure that describes an exception.

        If the exception is a Failure already, returns it unchanged; with a `message`, returns a copy that has
        the arguments `where`, `message` and `permanent` as attributes.

        where: what has failed, e.g. the name of a child. Not used for an Explained without a `message`, whose
            own message is complete.
        message: replaces the message of the exception.
        permanent: whether the process would fail again after a restart; default: the attribute of an
            Explained, False for any other exception.
        """
        is_explained = isinstance(error, Explained)
        if permanent is None:
            permanent = isinstance(error, Explained) and error.permanent
        if isinstance(error, cls):
            if not message:
                return error
            failure = copy.copy(error)
            failure.where, failure.message, failure.permanent = where, message, permanent
            return failure
        named = where if message or not is_explained else ""
        failure = cls(named, message or one_line(error), permanent)
        failure.text = _message(error)
        failure.traceback = "".join(traceback.format_exception(error))
        failure.short_traceback = short_traceback(error)
        failure._types = frozenset(qualified_name(kind) for kind in type(error).__mro__)
        causes = (qualified_name(kind) for cause in _causes(error) for kind in type(cause).__mro__)
        failure._types_of_causes = failure._types.union(causes)
        return failure

    def is_a(self, exception: type[BaseException]) -> bool:
        """Returns whether the exception that caused the failure is an instance of `exception`."""
        return qualified_name(exception) in self._types

    def caused_by(self, name: str) -> bool:
        """Returns whether the exception that caused the failure, or any exception that its traceback shows
        as the cause, is an instance of a class.

        name: "module.QualName" of the class; the module need not be imported.
        """
        return name in self._types_of_causes


@contextlib.contextmanager
def collected(failures: list[Failure]) -> Iterator[None]:
    """Returns a block that appends a Failure to `failures` for an exception within it, and does not raise.
    For the end of a run: workers must stop and learners must save even if an earlier step has failed."""
    try:
        yield
    except Exception as error:  # any error; the run ends with it
        failures.append(Failure.of(error, MAIN_LOOP))


def exceeded_limit(error: BaseException) -> str:
    """Returns advice if the exception comes from a limit of this process (`ulimit`): on its address space,
    its open files or its threads. Returns "" otherwise.

    Also recognises an ImportError for a library that does not fit into memory.
    """
    for cause in (error, *_causes(error)):
        message = _message(cause)
        if isinstance(cause, MemoryError) or any(text in message for text in NO_ROOM):
            return address_space_limit()
        for text, advice in LIMITS.items():
            if text in message:
                return advice
    return ""


def address_space_limit() -> str:
    """Returns a sentence about the limit of this process's address space (`ulimit -v`); "" without one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"the address space is limited to {limit / 1e6:,.0f} MB (ulimit -v); it should be unlimited"


def one_line(error: BaseException) -> str:
    """Returns one line about an exception, e.g. "LookupError: no level 7 (my_env.py:34)": type, message, the
    line of user code that raised it, and advice if it comes from a limit of this process.

    For an Explained: only the message, with the line of user code if an exception in user code is its cause.
    """
    if isinstance(error, Explained):
        text = " ".join(_message(error).split())
        cause = error.__cause__
        place = _place(cause) if cause is not None and _raised_in(cause) else ""
        return f"{text} ({place})" if place and place not in text else text
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    if error.__traceback__ is not None and not isinstance(error, SyntaxError):  # which contains the place
        text += f" ({_place(error)})"
    limit = exceeded_limit(error)
    return f"{text}; {limit}" if limit else text


def short_traceback(error: BaseException) -> str:
    """Returns the traceback with the frames of user code only. Without such frames the fault is in this
    package, and the traceback has all frames.

    For an Explained: the short traceback of the exception in user code that is its cause; empty without one.
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
    """Returns "file:line" of the innermost frame of user code; without user code, of the innermost frame."""
    frames = _raised_in(error) or traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def ends_in_user_code(error: BaseException) -> bool:
    """Returns whether the line that raised the error is outside of this package and the standard library."""
    stack = traceback.extract_tb(error.__traceback__)
    return bool(stack) and not _is_internal(stack[-1].filename)


def _raised_in(error: BaseException) -> list[traceback.FrameSummary]:
    return _user_frames(traceback.extract_tb(error.__traceback__))


def _user_frames(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Returns the frames of user code that this package has called, the innermost last.

    Leaves out frames of this package, of the standard library, and of libraries such as torch and numpy. If
    no frame remains, returns the frames of libraries; or an empty list if this package has raised the
    exception.
    """
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
