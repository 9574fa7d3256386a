"""Levels: named variants of an env, of which each episode plays one. See --levels."""

import ast
import copy
import functools
import inspect
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.consistency import check_values
from sample_factory.config.flag_parser import add_flags, make_parser, parse_known
from sample_factory.config.flags import ConfigError, coerce, section_fields
from sample_factory.config.parsing import as_arguments
from sample_factory.envs.end_infos import level_of
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.family_flags import FLAG_OF_PARAMETER, parse_env_kwargs
from sample_factory.envs.protocol import LEVEL
from sample_factory.runtime.registry import resolve

FIXED = "fixed"  # a value of --level_choice
ENV_KWARGS = "env_kwargs"  # the flag of families that pass arguments on to the env
NOT_OF_LEVELS = ("cfg", "env_config", "render_mode", *FLAG_OF_PARAMETER)  # parameters of make_env


class Level(NamedTuple):
    """A variant of the env that an episode can play.

    name: short and unique; a slash in the name groups the level's tags in TensorBoard.
    env_name: full name of the env that plays the level.
    flags: flag of the family -> value, for all flags in which the levels of the run differ.
    arguments: further arguments of make_env, or of --env_kwargs.
    """

    name: str
    env_name: str
    flags: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] = {}


def find_levels(family: EnvFamily, cfg: Any) -> tuple[Level, ...]:
    """Returns the levels of --levels, by default all levels of the family; empty for an env without levels.
    cfg: all flags, as attributes. Raises ConfigError for an entry that is no level, and for two levels of one
    name."""
    named = family.levels
    for field in _fields(family):
        if field.metadata["levels"] and getattr(cfg, field.name):
            if cfg.levels:
                flag = f"--{field.name}"
                raise ConfigError(
                    f"--levels and {flag} both list levels; add one of them without a value to drop it"
                )
            named = resolve(field.metadata["levels"])(cfg)
    levels = [_level(item, named, family) for item in cfg.levels or named]
    names = [level.name for level in levels]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--levels: two levels are called {name}; each should have a name of its own")
        if level_of({LEVEL: name}) != name or not name:
            raise ConfigError(f"--levels: {name!r} is no name of a level; use a short text, e.g. level1")
    differing = {flag: getattr(cfg, flag) for level in levels for flag in level.flags}
    return tuple(level._replace(flags={**differing, **level.flags}) for level in levels)


def at_level(family: EnvFamily, cfg: Any, level: Level) -> tuple[EnvFamily, Any]:
    """Returns the family and a copy of `cfg`, changed so that `make` of the returned family makes the env of
    the level."""
    own = copy.copy(cfg)
    for flag, value in level.flags.items():
        setattr(own, flag, value)
    make_env = family.make_env
    if level.arguments and _has_kwargs(family):
        own.env_kwargs = json.dumps({**parse_env_kwargs(own.env_kwargs), **level.arguments})
    elif level.arguments:
        make_env = functools.partial(make_env, **level.arguments)
    return replace(family, env_name=level.env_name, make_env=make_env, levels={}), own


def _level(item: str, named: Mapping[str, Mapping[str, Any]], family: EnvFamily) -> Level:
    if item in named:
        flags, arguments = _split(item, named[item], family)
        return Level(item, family.env_name, flags, arguments)
    if "=" in item:
        pairs = [pair.partition("=") for pair in re.split(r",(?=\w+=)", item)]
        flags, arguments = _split(item, {key: text for key, _, text in pairs}, family)
        name = ",".join(f"{key}={Path(text).stem if '/' in text else text}" for key, _, text in pairs)
        values = {key: _literal(text) for key, text in arguments.items()}
        return Level(name, family.env_name, flags, values)
    if family.prefix and item.startswith(family.prefix):
        return Level(item, item)
    known = f"one of {', '.join(named)}, " if named else ""
    others = f", or an env that begins with {family.prefix}" if family.prefix else ""
    raise ConfigError(f"--levels: {item} is no level of {family.env_name}; use {known}FLAG=VALUE{others}")


def _split(
    name: str, values: Mapping[str, Any], family: EnvFamily
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Splits the values of a level into flags of the family, converted to their types, and arguments of
    make_env. Raises ConfigError for a value that is neither. name: of the level, for the message."""
    own = [field.name for field in _fields(family)]
    flags = {key: value for key, value in values.items() if key in own}
    arguments = {key: value for key, value in values.items() if key not in own}
    parameters, takes_all = _parameters(family)
    unknown = [key for key in arguments if key not in parameters]
    if unknown and not takes_all:
        known = ", ".join([*own, *parameters]) or "none"
        raise ConfigError(
            f"--levels: level {name}: {family.env_name} has no flag, and its make_env no parameter, "
            f"{unknown[0]}; it has {known}"
        )
    return (_typed(name, family.flags, flags) if family.flags else {}), arguments


def _parameters(family: EnvFamily) -> tuple[Collection[str], bool]:
    """Returns the names of make_env's parameters that a level may set, and whether make_env accepts any other
    names."""
    found = inspect.signature(family.make_env).parameters.values()
    named = [own.name for own in found if own.kind in (own.POSITIONAL_OR_KEYWORD, own.KEYWORD_ONLY)]
    takes_all = _has_kwargs(family) or any(own.kind is own.VAR_KEYWORD for own in found)
    own_name = named[:1] if family.takes_name() else []
    return [name for name in named if name not in (*NOT_OF_LEVELS, *own_name)], takes_all


def _fields(family: EnvFamily) -> list[Any]:
    """Returns the dataclass fields of the family's flags."""
    return [] if family.flags is None else [field for field, _ in section_fields(family.flags)]


def _has_kwargs(family: EnvFamily) -> bool:
    return any(own.name == ENV_KWARGS for own in _fields(family))


def _typed(name: str, section: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the values of a level's flags to the flags' types. section: the dataclass of the flags. Raises
    ConfigError for a wrong value; the message has the level's name, `name`."""
    parser = make_parser()
    add_flags(parser, section)
    try:
        unset = coerce(section, {flag: None for flag, value in values.items() if value is None}, name)
        typed = unset | vars(parse_known(parser, as_arguments(values))[0])
        check_values(section(**typed))
    except ConfigError as error:
        raise ConfigError(f"--levels: level {name}: {error}") from None
    return typed


def _literal(text: str) -> Any:
    """Converts a text to the Python literal that it spells (a number, bool, list, ...); returns a text that
    spells none unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
