"""Failures of children as data: what the child sends about an exception, and what the parent raises."""

import traceback
from typing import NamedTuple


class PermanentFailure(Exception):
    """Raised in a child that would fail in the same way if it were started again."""


class FactoryNotFound(PermanentFailure):
    """A factory given by its name cannot be resolved."""


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
    chain = [error]
    while True:
        last = chain[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or any(cause is known for known in chain):  # a chain can be a cycle
            return chain[1:]
        chain.append(cause)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ of user code must not hide that the child failed
        return ""
