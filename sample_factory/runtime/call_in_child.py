"""In the parent: calls a function in a process of its own."""

from collections.abc import Callable
from typing import Any

from sample_factory.runtime.child import Child, ChildFailed, ChildOptions
from sample_factory.runtime.child_side import END_SECONDS, ChildContext
from sample_factory.runtime.launch import Factory
from sample_factory.runtime.log import log

MORE_SECONDS = 1.0  # than the child needs to end itself


def call_in_child(
    name: str, function: Callable[..., Any], args: tuple[Any, ...] = (), timeout: float = 60.0
) -> Any:
    """Calls `function(*args)` in a process of its own and returns the result.

    For calls that must not happen in this process: loading an engine that cannot be unloaded, code that may
    crash. Raises ChildFailed, also when the call takes more than `timeout` seconds.
    """
    return run_in_child(name, _Call, (function, args), timeout)


def run_in_child(name: str, factory: Factory, args: tuple[Any, ...] = (), timeout: float = 60.0) -> Any:
    """Like call_in_child, for an object: builds `factory(*args, context)` and returns the result of its
    `run()`. What it leaves to `context.cleanup` has END_SECONDS more.
    """
    child = Child(name, factory, args, ChildOptions(one_shot=True))
    child.start()
    try:
        if not child.wait_outcome(timeout):
            raise ChildFailed(name, f"has not returned after {timeout:g} s")
        if not child.join(END_SECONDS + MORE_SECONDS):
            log.warning("%s has not ended %g s after its work was done, and is killed", name, END_SECONDS)
        if child.error is not None:
            raise child.error
        return child.result
    finally:
        child.kill()


class _Call:
    """In the child: the object of call_in_child."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], context: ChildContext):
        self._function = function
        self._args = args

    def run(self) -> Any:
        return self._function(*self._args)
