"""Factories by name, and "module:attribute" strings that are imported only when they are needed."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from sample_factory.runtime.failures import ConfigError


class WrongPath(ValueError):
    """Raised for a string not of the form "module:attribute", or if the module has no such attribute."""


def import_attribute(path: str) -> Any:
    """Imports the module of a "module:attribute" string and returns the attribute.
    Raises WrongPath, ImportError if there is no such module, and whatever else the import raises."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute.isidentifier():
        raise WrongPath(f"{path!r} should be of the form 'package.module:attribute', with one colon")
    module = importlib.import_module(module_name)
    if attribute not in vars(module):
        raise WrongPath(f"{module_name} has no attribute {attribute}")
    return vars(module)[attribute]


def resolve(part: Any) -> Any:
    """Imports and returns the attribute that a "module:attribute" string names; returns anything else
    unchanged.
    Raises WrongPath or ImportError if the string names no attribute, and whatever else the import raises."""
    return import_attribute(part) if isinstance(part, str) else part


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6, prefix: str = "") -> str:
    """Returns "; did you mean X?" with the known word that is nearest to `word`, or "" if none is near.

    Ignores upper and lower case.

    cutoff: similarity, 0..1, that a suggestion must have at least.
    prefix: text put before the suggested word, e.g. "--".
    """
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {prefix}{by_lower[close[0]]}?" if close else ""


class Registry:
    """Maps names, the values of one flag, to factories. A factory may be a "module:attribute" string, which
    the registry does not import."""

    def __init__(self, flag: str, built_in: Mapping[str, Any], advice: str = ""):
        """Makes a registry with the built-in factories, a dict of name -> factory.

        flag: name of the flag that selects a factory, for error messages.
        advice: for error messages: what to do about an unknown name, besides using "module:attribute".
        """
        self._flag = flag
        self._advice = advice
        self._factories = dict(built_in)

    def register(self, name: str, factory: Any) -> None:
        """Adds a factory; replaces a factory of the same name."""
        self._factories[name] = factory

    def remove(self, name: str) -> None:
        """Removes a factory. Raises KeyError for an unknown name."""
        del self._factories[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Returns all names, in the order in which they were first registered."""
        return tuple(self._factories)

    def __contains__(self, name: str) -> bool:
        return name in self._factories

    def find(self, name: str) -> Any:
        """Returns the factory of a name; returns an unknown name of the form "module:attribute" unchanged.
        Raises ConfigError for any other unknown name; the message suggests a similar name and lists all
        names."""
        if name in self._factories or ":" in name:
            return self._factories.get(name, name)
        hint = did_you_mean(name, self._factories) or ";"
        names = ", ".join(sorted(self._factories)) or "none"
        raise ConfigError(
            f"--{self._flag}={name} is unknown{hint} known: {names}; {self._advice}or use module:attribute"
        )
