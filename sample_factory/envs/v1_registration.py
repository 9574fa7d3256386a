"""Flags of env families as in versions 1 and 2, by functions that edit an argparse parser."""

import argparse
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.config.flag_parser import FlagParser, parse_bool
from sample_factory.config.flags import ConfigError, check_json, script_flag


class ParserRecorder(FlagParser):
    """An argparse parser that records the arguments and defaults a script adds, and makes dataclass fields of
    them."""

    def __init__(self, **kwargs: Any):
        self._set: dict[str, Any] = {}
        super().__init__(**kwargs)

    def set_defaults(self, **kwargs: Any) -> None:
        self._set.update(kwargs)
        super().set_defaults(**kwargs)  # for the arguments, before and after this call

    @property
    def recorded_defaults(self) -> dict[str, Any]:
        """The defaults that `set_defaults` has given to flags without an argument in this parser: flag ->
        default."""
        return {name: value for name, value in self._set.items() if name not in self._arguments()}

    def argument_defaults(self) -> dict[str, Any]:
        """Returns the defaults of the parser's arguments, by name. Raises ConfigError for a default that
        cfg.json cannot hold."""
        defaults = {}
        for name, actions in self._arguments().items():
            no_value = (None, argparse.SUPPRESS)
            default = next((action.default for action in actions if action.default not in no_value), None)
            try:  # argparse converts defaults that are texts
                default = self._get_value(actions[0], default) if isinstance(default, str) else default
            except argparse.ArgumentError as error:
                raise ConfigError(f"the default of {error}") from None
            defaults[name] = check_json(default, f"the default of --{name}")
        return defaults

    def flags_type(self) -> type | None:
        """Returns a frozen dataclass with a field for each argument, or None if there are none. Raises
        ConfigError for a default that cfg.json cannot hold."""
        fields = {}
        for name, default in self.argument_defaults().items():
            actions = self._arguments()[name]
            help = next((action.help for action in actions if action.help), "")
            fields[name] = script_flag(default, help, [*map(_without_default, actions)])
        return flags_of(fields) if fields else None

    def check_groups(self, argv: Sequence[str]) -> None:
        """Raises ConfigError if typed arguments exclude each other, or if a required argument is missing.
        argv: the typed command line."""
        self.parse_known_args(list(argv))

    def _arguments(self) -> dict[str, list[argparse.Action]]:
        """Returns the arguments of the parser by the name of the value that they set."""
        arguments: dict[str, list[argparse.Action]] = {}
        for action in self._actions:  # those of its groups too
            if action.dest != argparse.SUPPRESS:
                arguments.setdefault(action.dest, []).append(action)
        return arguments


def _without_default(action: argparse.Action) -> argparse.Action:
    """Returns a copy of an argument for another parser, where it sets a value only if it is typed. A switch
    also takes True or False, as other flags do."""
    suppressed = argparse.SUPPRESS
    if action.nargs == 0 and isinstance(action.const, bool):
        names, dest = action.option_strings, action.dest
        return argparse._StoreAction(names, dest, "?", action.const, suppressed, parse_bool)
    own = copy.copy(action)
    own.default = suppressed
    own.required = False  # of typed arguments only, see `check_groups`: the value may come from a cfg.json
    vars(own)["container"] = None  # it is the parser, and the flags of a family are sent to other processes
    if own.type is bool:  # which takes every text for True, "False" too
        own.type = parse_bool
    return own


def flags_of(fields: Mapping[str, Any]) -> type:
    """Returns a frozen dataclass of a script's flags. fields: name of a flag -> result of `script_flag`."""
    listed = [(name, object, field) for name, field in fields.items()]
    return dataclasses.make_dataclass("ScriptFlags", listed, frozen=True)


def values_of_script(values: Mapping[str, Any]) -> type:
    """Returns a dataclass of flags for the values, by name, that a script has set without declaring an
    argument, so that cfg.json has them. Raises ConfigError for a value that cfg.json cannot hold."""
    return flags_of({name: script_flag(check_json(x, f"cfg.{name}"), "", ()) for name, x in values.items()})


def joined(first: type | None, second: type | None) -> type | None:
    """Returns a dataclass with the fields of both; where both have a field of the same name, the field of the
    first. None if both are None."""
    if first is None or second is None:
        return first or second
    return dataclasses.make_dataclass(first.__name__, [], bases=(first, second), frozen=True)
