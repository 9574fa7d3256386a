"""One dataclass field = one command-line flag = one JSON key."""

import argparse
import copy
import dataclasses
import functools
import json
import math
import numbers
import operator
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.runtime.failures import ConfigError as ConfigError

MAX_INT = 2**63 - 1  # of an int64
MAX_FLOAT = 3.4e38  # of a float32
MAX_SHOWN = 200  # characters of a value in a message
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
NEVER = int(1e10)  # a limit that is never reached


class Not(tuple[Any, ...]):
    """In `only_with`: all values but these."""


class AtLeast(tuple[str, ...]):
    """In `only_with`: numbers that are at least the values of these flags."""


# Values of other flags, all of which a flag needs; or several such sets, of which it needs one.
OnlyWith = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


class Layer(NamedTuple):
    """Values of some flags from one source, such as a file.

    source: its name in error messages. foreign: the file, if another account has written it (see trust.py).
    """

    source: str
    values: Mapping[str, Any]
    foreign: Path | None = None

    def without(self, *names: str) -> "Layer":
        """Returns the layer without some flags."""
        return self._replace(values={name: value for name, value in self.values.items() if name not in names})


class FlagOptions(NamedTuple):
    """What `flag` takes, and the metadata of its field.

    help: a phrase that can be understood without the help of any other flag.
    choices: all values, but for None; with chosen_if, only while these other flags of the section have one of
        these values.
    aliases: other names that are accepted (mostly names of version 2); one with a dash, such as -r, as it is.
    checks: bounds of numbers: `at_least`, `above`, `at_most`, `below`, which are arguments of their own.
    is_folder: the value is the path of a folder that must exist.
    is_output: the value is the path of a file that is written, in a folder that must exist.
    metavar: placeholder of the value in the help; empty: FILE for is_output, NAME for names_code, else INT,
        FLOAT or TEXT, depending on the type. In a cfg.json of another account, a FILE must be in the folder
        of the run, and a FOLDER is not used.
    synonyms: another word for a value -> the value, which is used and saved.
    names_code: a name; with a colon it is imported, so a cfg.json of another account must not have it.
    never_foreign: never taken from a cfg.json of another account, e.g. because it names a service.
    only_with: other flag -> its values with which this flag has an effect, or a `Not`;
        several such dicts if one of them is enough. See effects.py, which also has names for properties of
        the env in place of a flag.
    repeats: of a list to which each mention of the flag adds a value.
    is_positional: the value or list is typed without a name.
    is_bare: a bool that is never followed by a value, since a positional argument may follow.
    levels: of a family: "module:function" that returns the levels that the flag lists, see `register_env`; it
        is called with all flags as attributes.
    actions: see `script_flag`.
    """

    help: str
    choices: Sequence[Any] = ()
    chosen_if: Mapping[str, Sequence[Any]] = {}
    aliases: Sequence[str] = ()
    checks: Mapping[str, float] = {}
    is_folder: bool = False
    is_output: bool = False
    metavar: str = ""
    synonyms: Mapping[str, str] = {}
    names_code: bool = False
    never_foreign: bool = False
    only_with: Sequence[Mapping[str, Sequence[Any]]] = ()
    repeats: bool = False
    is_positional: bool = False
    is_bare: bool = False
    levels: str = ""
    actions: Sequence[argparse.Action] | None = None


def flag(
    default: Any,
    help: str,
    *,
    between: tuple[float, float] | None = None,
    only_with: OnlyWith = (),
    **options: Any,
) -> Any:
    """Returns a dataclass field that is also a command-line flag of the same name.

    between: the smallest and the largest number. options: see FlagOptions.
    """
    checks = {name: options.pop(name) for name in BOUNDS if name in options}
    if between is not None:
        checks |= {"at_least": between[0], "at_most": between[1]}
    sets = (only_with,) if isinstance(only_with, Mapping) else tuple(only_with)
    found = FlagOptions(help, checks=checks, only_with=sets, **options)
    metavar = found.metavar or ("FILE" if found.is_output else "NAME" if found.names_code else "")
    return dataclasses.field(default=default, metadata=found._replace(metavar=metavar)._asdict())


def script_flag(default: Any, help: str, actions: Sequence[argparse.Action]) -> Any:
    """Returns a dataclass field, annotated with `object`, for a value of any type that JSON has.

    default: copied for each section. actions: parse the value, as argparse does; none: it cannot be typed.
    """
    metadata = FlagOptions(help, actions=tuple(actions))._asdict()
    return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns the default value of a flag."""
    return field.default_factory() if callable(field.default_factory) else field.default


def shortened(text: str) -> str:
    """Returns a text for a message: at most MAX_SHOWN characters, without control characters."""
    start = text[:MAX_SHOWN]
    shown = start if start.isprintable() else repr(start)
    return shown if len(text) <= MAX_SHOWN else f"{shown}... ({len(text):,} characters)"


class FlagType(NamedTuple):
    """The type of a flag: `scalar`, or a tuple of it (is_list), or None (is_optional)."""

    scalar: type
    is_list: bool = False
    is_optional: bool = False

    @classmethod
    def of(cls, annotation: Any) -> "FlagType":
        """Returns the type that the annotation of a field means, e.g. `tuple[int, ...]` or `str | None`."""
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
            word = field.metadata["synonyms"].get(value, value) if isinstance(value, str) else value
            coerced[key] = _coerce_scalar(scalar, word, key, source)
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


def check_values(section: Any, sources: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError for a flag outside its choices or bounds, or with a path that cannot be used.

    sources: flag -> name of the source of its value, for the message; empty for the command line.
    """
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        source = (sources or {}).get(field.name)
        name = f"{source}: --{field.name}" if source else f"--{field.name}"
        choices = field.metadata["choices"]
        checks = field.metadata["checks"]
        is_chosen = all(
            getattr(section, of) in of_values for of, of_values in field.metadata["chosen_if"].items()
        )
        if choices and is_chosen and value is not None and value not in choices:
            raise ConfigError(f"{name}={shortened(str(value))}: choose one of {', '.join(map(str, choices))}")
        if value == "" and default_of(field):
            raise ConfigError(f"{name} is empty; leave it out for {default_of(field)}")
        if value is not None and field.metadata["is_folder"] and not os.path.isdir(os.path.expanduser(value)):
            raise ConfigError(f"{name}={shortened(value)}: there is no such folder")
        if value is not None and field.metadata["is_output"]:
            path = Path(os.path.expanduser(value)).absolute()
            if path.is_dir():
                raise ConfigError(f"{name}={shortened(value)} is a folder; it should be the name of a file")
            if not path.parent.is_dir():
                raise ConfigError(f"{name}={shortened(value)}: its folder does not exist; create it first")
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, (int, float)) and not isinstance(item, bool):
                _check_bounds(name, item, checks, may_be_infinite=value == default_of(field))


def _check_bounds(name: str, value: float, checks: Mapping[str, float], may_be_infinite: bool) -> None:
    if value != value:
        raise ConfigError(f"{name}={value}: must be a number")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise ConfigError(f"{name}: has {len(str(value))} digits, and must be at most {MAX_INT}")
    for check, bound in checks.items():
        if not BOUNDS[check](value, bound):
            raise ConfigError(f"{name}={value}: must be {check.replace('_', ' ')} {bound}")
    if isinstance(value, float) and abs(value) > MAX_FLOAT and not may_be_infinite:
        raise ConfigError(f"{name}={value}: must be finite, at most {MAX_FLOAT}")
