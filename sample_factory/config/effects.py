"""Typed flags that have no effect: one rule for every command, and for the functions of Python.

A command declares which flags it reads (`Command.reads`), a flag with which others it applies (`only_with`).
A typed flag that has no effect is reported in one line. It is an error only where the command has another
flag for the same purpose, since the command would otherwise do what nobody asked for.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.config import Config, as_text
from sample_factory.config.flags import AtLeast, ConfigError, Not, default_of
from sample_factory.config.observation_defaults import FOLLOWING
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.runtime.log import log

# Property of the env -> the values that the env has, e.g. {"observations": {"image", "vector"}}.
Facts = Mapping[str, Collection[str]]


def report_without_effect(config: Config) -> None:
    """Logs the typed flags that have no effect in the command for which they were parsed.

    Flags whose effect depends on the spaces of the env are logged when the env is known, see
    `flags_without_effect` in launch/checks.py.

    Raises ConfigError for a flag that has a counterpart in this command (`Command.instead`).
    """
    command = config.command
    if command.reads is None:
        return
    unread = [name for name in changed_flags(config) if not command.uses(name, config.section_of(name))]
    for name in unread:
        if name in command.instead:
            value = as_text(config.flat()[name])
            raise ConfigError(f"--{name}={value} has no effect in {command.name}: {command.instead[name]}")
    if unread:
        text = "%s in %s, except for an env that reads its cfg"
        log.warning(text, _no_effect(unread), command.name)
    for name in config.typed.keys() & RETIRED_FLAGS.keys():
        log.warning("--%s has no effect: %s", name, RETIRED_FLAGS[name])
    for line in without_effect(config):
        log.warning("%s", line)


def changed_flags(config: Config) -> list[str]:
    """Returns the names of the typed flags whose values differ from the defaults that the flags declare; the
    defaults of envs and commands do not count."""
    fields, values = _fields(config), config.flat()
    return [name for name in config.typed if name in fields and values[name] != default_of(fields[name])]


def without_effect(config: Config, facts: Facts | None = None) -> list[str]:
    """Returns lines about typed flags that have no effect because of the values of other flags, or because
    of the env. Flags with the same reason share a line; flags that the command never reads are left out.

    facts: properties of the env, if they are known.
    """
    uses = config.command.uses
    names = [name for name in changed_flags(config) if uses(name, config.section_of(name))]
    flags_of: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        needs = why_without_effect(config, name, facts or {})
        if needs:
            flags_of.setdefault(needs, []).append(name)
    return [f"{_no_effect(names)}; needed: {' and '.join(needs)}" for needs, names in flags_of.items()]


def why_without_effect(config: Config, name: str, facts: Facts) -> tuple[str, ...]:
    """Returns phrases that name what a flag lacks to have an effect; an empty tuple if the flag has an
    effect, or if that is not known yet.

    If `only_with` of the flag has several dicts, the phrases are about the first of them.
    """
    fields, values = _fields(config), config.flat()
    reason: tuple[str, ...] = ()

    def is_read(other: str) -> bool:
        return other in fields and config.command.uses(other, config.section_of(other))

    levels = config.env.levels if is_read("levels") else ()
    if levels and all(f",{name}=" in f",{level}" for level in levels):
        return ("--levels that leave it out",)
    for needed in fields[name].metadata["only_with"]:
        if all(other in fields and not is_read(other) for other in needed):
            continue  # what this condition is about, the command does not do
        lacks = []
        for other, wanted in needed.items():
            if other in facts:
                if not set(wanted) & set(facts[other]):
                    lacks.append(f"{wanted[0]} {other}")
            elif is_read(other):
                is_open = other in config.open_flags and other in FOLLOWING
                if not is_open and not _fits(other, values, wanted):
                    lacks.append(_wanted(other, values, wanted))
        if not lacks:
            return ()
        reason = reason or tuple(lacks)
    return reason


def _fits(flag: str, values: Mapping[str, Any], wanted: Sequence[Any]) -> bool:
    value = values[flag]
    if isinstance(wanted, AtLeast):
        return bool(value >= max(values[name] for name in wanted))
    if flag == "algo" and value not in BUILT_IN:  # an algorithm of the user's own may read every flag
        return True
    return (value in wanted) != isinstance(wanted, Not)


def _wanted(flag: str, values: Mapping[str, Any], wanted: Sequence[Any]) -> str:
    if isinstance(wanted, AtLeast):
        largest = max(wanted, key=lambda name: values[name])
        return f"--{flag} of at least {values[largest]:,} (--{largest})"
    if isinstance(wanted, Not):
        return f"--{flag}=..." if wanted == (None,) else f"--{flag} other than {as_text(values[flag])}"
    texts = [str(value) for value in wanted if value not in (None, ())]
    return f"--{flag}={' or '.join(texts)}" if texts else f"no --{flag}"


def _no_effect(names: Sequence[str]) -> str:
    verb = "has" if len(names) == 1 else "have"
    return f"{', '.join(f'--{name}' for name in names)} {verb} no effect"


def _fields(config: Config) -> dict[str, "dataclasses.Field[Any]"]:
    return {
        field.name: field for section in config.sections.values() for field in dataclasses.fields(section)
    }
