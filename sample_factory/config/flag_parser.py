"""Sections of flags on the command line: their parser, made with argparse."""

import argparse
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from sample_factory.config.flags import NEVER, ConfigError, FlagType, section_fields
from sample_factory.runtime.registry import did_you_mean

NEAR = 0.7  # similarity below which a flag is no suggestion


def parse_bool(text: str) -> bool:
    """Parses `true` or `false`, in upper or lower case."""
    lowered = str(text).lower()
    if lowered not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a bool; write True or False")
    return lowered == "true"


def parse_int(text: str) -> int:
    """Parses an integer, also in the forms 4_000_000 and 4e6."""
    try:
        value = float(text) if any(mark in text.lower() for mark in ("e", ".")) else int(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer; write for example 1_000_000 or 1e6, and spaces between several"
        )
    return int(value)


def parse_float(text: str) -> float:
    """Parses a number. NaN and infinity are refused later, with the bounds of the flag."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def parse_limit(text: str) -> int:
    """Parses an integer, or `never` for a limit that is never reached."""
    return NEVER if text.lower() == "never" else parse_int(text)


class FlagParser(argparse.ArgumentParser):
    """An argparse parser that raises ConfigError where argparse would print the usage and end the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Disables argparse's rule that -rVALUE means -r VALUE: it would accept a misspelled --rollout."""
        return []


def make_parser() -> argparse.ArgumentParser:
    """Returns a parser without a help of its own, to be used with `parse_known`.

    Why argparse: for the sections of TRAINING_SECTIONS it takes 5 ms. tyro 1.0 takes 75 ms to be imported and
    40 to 140 ms to parse them, jsonargparse 4.53 takes 110 and 140 to 210 ms, and neither says which flags
    were typed, on which the precedence over saved flags depends.
    """
    return FlagParser(add_help=False, allow_abbrev=False, exit_on_error=False)


def envs_as_levels(argv: Sequence[str]) -> list[str]:
    """Rewrites `--env A B` as `--env=A --levels A B`; returns the arguments.

    Raises ConfigError if --levels is typed, too.
    """
    arguments = list(argv)
    if "--env" not in arguments:
        return arguments
    start = arguments.index("--env") + 1
    envs = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments[start:]))
    if len(envs) < 2:
        return arguments
    if any(word.partition("=")[0] == "--levels" for word in arguments):
        raise ConfigError(f"--env {' '.join(envs)}: several envs are levels; leave --levels out")
    return [*arguments[: start - 1], f"--env={envs[0]}", "--levels", *envs, *arguments[start + len(envs) :]]


def parse_known(
    parser: argparse.ArgumentParser, argv: Sequence[str], intermixed: bool = False
) -> tuple[argparse.Namespace, list[str]]:
    """Parses the arguments that the parser knows. Returns them, and the list of all others.

    intermixed: flags may stand between positional arguments. Raises ConfigError for a bad value.
    """
    parse = parser.parse_known_intermixed_args if intermixed else parser.parse_known_args
    try:
        return parse(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(str(error).removeprefix("argument ")) from None


def parse_all(
    parser: argparse.ArgumentParser, argv: Sequence[str], intermixed: bool = False, hint: str = ""
) -> dict[str, Any]:
    """Parses all arguments. Returns flag -> value.

    Raises ConfigError for a bad value, and for unknown arguments, with the nearest flags; the message ends
    with `hint`.
    """
    typed, rest = parse_known(parser, argv, intermixed)
    known = [option.lstrip("-") for action in parser._actions for option in action.option_strings]
    flags = [word for word in rest if word.startswith("-") and not word[1:2].isdigit()]
    if flags:
        texts = [f"unknown flag {word}{nearest_flag(word.partition('=')[0], known)}" for word in flags]
        raise ConfigError("; ".join(texts) + hint)
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]}: write --flag=value, as in --env=doom_basic{hint}")
    return vars(typed)


def nearest_flag(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown flag, e.g. "; did you mean --gamma?"; empty if no known
    flag is similar.

    name: as typed; dashes count as underscores, and PufferLib's `--train.gamma` as gamma.
    """
    plain = name.lstrip("-").rpartition(".")[2].replace("-", "_")
    return did_you_mean(plain, known, NEAR, "--")


def add_flags(parser: argparse.ArgumentParser, section: type) -> None:
    """Adds every flag of a section to the parser. Flags that are not typed are not set in the namespace."""
    fields = section_fields(section)
    has_words = any(field.metadata["is_positional"] for field, _ in fields)
    for field, kind in fields:
        add_flag(parser, field, kind, has_words)


def add_flag(
    parser: argparse._ActionsContainer,
    field: dataclasses.Field[Any],
    kind: FlagType,
    has_words: bool,
    **explained: Any,
) -> None:
    """Adds a flag to a parser or to a group of a parser.

    has_words: there are positional arguments, so a bool takes no value, and a list one value each time that
        the flag is typed.
    explained: `help` and `metavar` of the flag, for a parser that prints a help.
    """
    if field.metadata["actions"] is not None:
        for action in field.metadata["actions"]:
            own = copy.copy(action)
            own.help = explained.get("help")
            own.metavar = own.metavar or (None if own.choices else explained.get("metavar"))
            parser._add_action(own)
        return
    parsers: dict[type, Callable[[str], Any]] = {bool: parse_bool, int: parse_int, float: parse_float}
    parse = parse_limit if field.default == NEVER else parsers.get(kind.scalar, str)
    how: dict[str, Any] = {"default": argparse.SUPPRESS, **explained}
    how["type"] = (lambda text: None if text == "None" else parse(text)) if kind.is_optional else parse
    if field.metadata["is_positional"]:
        parser.add_argument(field.name, nargs="*" if kind.is_list else "?", **how)
        return
    if kind.scalar is bool and has_words:
        del how["type"]
        how |= {"action": "store_const", "const": True}
    elif kind.scalar is bool and not kind.is_list:
        how |= {"nargs": "?", "const": True}  # a bare --no_render means True
    elif kind.is_list:
        how |= {"nargs": 1, "action": "extend"} if has_words else {"nargs": "*"}
    names = [name if name[0] == "-" else f"--{name}" for name in (field.name, *field.metadata["aliases"])]
    parser.add_argument(*names, dest=field.name, **how)
