"""One dataclass field = one command-line flag = one JSON key."""

import argparse
import copy
import dataclasses
import functools
import json
import math
import numbers
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.runtime.failures import ConfigError as ConfigError

MAX_INT = 2**63 - 1  # of an int64
MAX_FLOAT = 3.4e38  # of a float32
MAX_SHOWN = 200  # characters of a value in a message
NEVER = int(1e10)  # a limit that is never reached
SYNONYMS = {"cuda": "gpu"}  # other words for choices


class Not(tuple[Any, ...]):
    """In `only_with` of `flag(...)`: the flag has an effect if the other flag has none of these values."""


class AtLeast(tuple[str, ...]):
    """In `only_with` of `flag(...)`: the flag has an effect if the other flag is at least as large as each of
    the flags named here."""


# Values of other flags, all of which a flag needs; or several such sets, of which it needs one.
OnlyWith = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


class Layer(NamedTuple):
    """Values of some flags from one source, such as a file.

    source: name of the source, for error messages. foreign: path of the file if another account has written
    it, see trust.py.
    """

    source: str
    values: Mapping[str, Any]
    foreign: Path | None = None

    def without(self, *names: str) -> "Layer":
        """Returns a copy of the layer without the named flags."""
        return self._replace(values={name: value for name, value in self.values.items() if name not in names})


def flag(
    default: Any,
    help: str,
    *,
    choices: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    between: tuple[float, float] | None = None,
    metavar: str = "",
    is_output: bool = False,
    names_code: bool = False,
    only_with: OnlyWith = (),
    levels: str = "",
    is_positional: bool = False,
) -> Any:
    """Returns a dataclass field that is also a command-line flag of the same name.

    help: a phrase that can be understood without the help of any other flag.
    choices: all values except None.
    aliases: other accepted names, mostly of version 2; an alias with a dash, such as -r, is typed as given.
    at_least, above, at_most, between: bounds of a number, or of each number of a list.
    metavar: placeholder of the value in the help, by default FILE, NAME, INT, FLOAT or TEXT. From a cfg.json
        of another account, a FILE or RUN must be inside the folder of the run, and a FOLDER is not used.
    is_output: the value is the path of a file to write, in a folder that must exist.
    names_code: the value is a name, or a "module:attribute" to import, which a cfg.json of another account
        must not contain.
    only_with: other flag -> its values with which this flag has an effect, or a `Not`; several such dicts if
        one of them is enough. Keys may also be properties of the env, see `Facts` in effects.py.
    levels: "module:function" that is called with all flags as attributes and returns the levels that this
        flag of an env family lists, see `register_env`.
    is_positional: the value, or the list of values, is typed without the name of the flag.
    """
    low, high = between or (at_least, at_most)
    bounds = {"at_least": low, "above": above, "at_most": high}
    options = {
        "help": help,
        "choices": choices,
        "aliases": aliases,
        "bounds": {check: bound for check, bound in bounds.items() if bound is not None},
        "metavar": metavar or ("FILE" if is_output else "NAME" if names_code else ""),
        "is_output": is_output,
        "names_code": names_code,
        "only_with": (only_with,) if isinstance(only_with, Mapping) else tuple(only_with),
        "levels": levels,
        "is_positional": is_positional,
        "actions": None,
    }
    return dataclasses.field(default=default, metadata=options)


def script_flag(default: Any, help: str, actions: Sequence[argparse.Action]) -> Any:
    """Returns a dataclass field for a flag that a script for version 1 or 2 has added with argparse. The
    field is to be annotated with `object`; its value may have any type that JSON has.

    default: copied for each section. actions: parse the value, as argparse does; none: the flag cannot be
    typed.
    """
    options = {**flag(None, help).metadata, "actions": tuple(actions)}
    return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=options)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns the default value of a flag."""
    return field.default_factory() if callable(field.default_factory) else field.default


def shortened(text: str) -> str:
    """Returns a text for a message: cut to MAX_SHOWN characters, with control characters escaped."""
    start = text[:MAX_SHOWN]
    shown = start if start.isprintable() else repr(start)
    return shown if len(text) <= MAX_SHOWN else f"{shown}... ({len(text):,} characters)"


class FlagType(NamedTuple):
    """The type of a flag's value: `scalar`; with is_list, a tuple of `scalar`; with is_optional, or None."""

    scalar: type
    is_list: bool = False
    is_optional: bool = False

    @classmethod
    def of(cls, annotation: Any) -> "FlagType":
        """Converts the annotation of a field, e.g. `tuple[int, ...]` or `str | None`, to a FlagType."""
        if typing.get_origin(annotation) in (typing.Union, types.UnionType):
            inner = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
            return cls.of(inner[0])._replace(is_optional=True)
        if typing.get_origin(annotation) is tuple:
            return cls(typing.get_args(annotation)[0], is_list=True)
        return cls(annotation)


@functools.cache  # resolving annotations is slow, and each flag of a file asks for them
def section_fields(section: type) -> list[tuple[dataclasses.Field[Any], FlagType]]:
    """Returns (field, type) for each flag of a section."""
    hints = typing.get_type_hints(section)
    return [(field, FlagType.of(hints[field.name])) for field in dataclasses.fields(section)]


def coerce(section: type, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Converts values from JSON or from code to the types of a section's flags.

    A single value is accepted as a list of one, as on the command line, and null as an empty list, as version
    2 saves it. Raises ConfigError with the key, the value, the type and the source.
    """
    coerced: dict[str, Any] = {}
    fields = {field.name: (field, kind) for field, kind in section_fields(section)}
    for key, value in values.items():
        field, (scalar, is_list, is_optional) = fields[key]
        if scalar is object:
            coerced[key] = check_json(value, f"{source}: {key}")
        elif value is None and is_optional:
            coerced[key] = None
        elif is_list:
            items = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
            coerced[key] = tuple(_coerce_scalar(scalar, item, key, source) for item in items)
        else:
            word = SYNONYMS.get(value) if isinstance(value, str) else None
            is_choice = word in field.metadata["choices"]
            coerced[key] = _coerce_scalar(scalar, word if is_choice else value, key, source)
    return coerced


def check_json(value: Any, name: str) -> Any:
    """Returns `value` unchanged if cfg.json can hold it; raises ConfigError otherwise. name: what the error
    calls the value."""
    try:
        json.dumps(value)
        fits = _has_text_keys(value)  # JSON would make texts of other keys
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ConfigError(
            f"{name} = {shortened(repr(value))} cannot be written to cfg.json; use numbers, texts, lists and "
            "dicts with texts as keys, and make other objects of them in make_env"
        )
    return value


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(inner) for key, inner in value.items())
    return all(map(_has_text_keys, value)) if isinstance(value, (list, tuple)) else True


def _coerce_scalar(scalar: type, value: Any, key: str, source: str) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # NumPy has further types
    if scalar is float and is_number and (not isinstance(value, int) or abs(value) <= MAX_INT):
        return float(value)
    if scalar is int and is_number and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, scalar) and isinstance(value, bool) == (scalar is bool):
        return value
    raise ConfigError(f"{source}: {key} = {shortened(repr(value))} should be of type {scalar.__name__}")
