"""Objects by name, and objects named by a "module:attribute" string that is imported only when needed."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any


class WrongPath(ValueError):
    """A string is not of the form "module:attribute", or the module has no such attribute."""


def import_attribute(path: str) -> Any:
    """Returns what a "module:attribute" string names, importing the module.

    Raises WrongPath, and whatever the import of the module raises: ImportError if there is no such module.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute.isidentifier():
        raise WrongPath(f"{path!r} should be of the form 'package.module:attribute', with one colon")
    module = importlib.import_module(module_name)
    if attribute not in vars(module):
        raise WrongPath(f"{module_name} has no attribute {attribute}")
    return vars(module)[attribute]


def resolve(part: Any) -> Any:
    """Returns what a "module:attribute" string names; anything else is returned unchanged. Raises as
    `import_attribute`."""
    return import_attribute(part) if isinstance(part, str) else part


class Registry:
    """Factories by name for one flag. A factory may be a "module:attribute" string: registering it, and
    looking it up, imports nothing.
    """

    def __init__(self, flag: str, built_in: Mapping[str, Any]):
        """flag: the flag that selects a name, for messages."""
        self._flag = flag
        self._factories = dict(built_in)

    def register(self, name: str, factory: Any) -> None:
        """Adds a factory; replaces one of the same name."""
        self._factories[name] = factory

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of their registration."""
        return tuple(self._factories)

    def __contains__(self, name: str) -> bool:
        return name in self._factories

    def find(self, name: str) -> Any:
        """Returns the factory of that name. Raises ValueError, with the nearest and all names."""
        if name in self._factories:
            return self._factories[name]
        upper = {known.upper(): known for known in self._factories}
        close = [upper[found] for found in difflib.get_close_matches(name.upper(), upper, n=1)]
        hint = f"did you mean {close[0]}? " if close else ""
        names = ", ".join(sorted(self._factories)) or "none"
        raise ValueError(f"--{self._flag}={name}: {hint}known: {names}")
