"""The text that --help prints: the flags of a command, with the defaults of an env."""

import argparse
import dataclasses
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sample_factory.config.commands import COMMANDS, ENJOY, PLOT_CURVES, TRAIN, Command, Example
from sample_factory.config.flags import NEVER, flag_type, section_fields
from sample_factory.config.sections import TRAINING_SECTIONS

MIN_WIDTH = 60
MAX_WIDTH = 120
TEXT_COLUMN = 30  # where the explanation of a flag begins
EVERYTHING = "all"  # the value in --help=all
PACKAGE = "sample_factory"


class FlagHelp(NamedTuple):
    """One flag in the help. default: that of the env at hand."""

    field: dataclasses.Field[Any]
    annotation: Any
    default: Any


def show(text: str) -> None:
    """Prints a text; a reader that ends early, such as `head`, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise the interpreter reports an error when it flushes the output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def width() -> int:
    """Returns the number of columns to use, at most those of the terminal."""
    return max(MIN_WIDTH, min(shutil.get_terminal_size().columns, MAX_WIDTH))


def command_help(
    command: Command,
    sections: Mapping[str, type],
    env_name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    own_sections: Collection[str] = (),
    everything: bool = False,
) -> str:
    """Returns the help of a command that takes the flags of an experiment.

    sections: name -> section, all that the command accepts; "family" is that of the env.
    env_name: None: the help for all envs.
    defaults: flag -> default of the env, instead of the default of the section.
    own_sections: names of the sections that only this command has.
    everything: every flag by section, not only the common ones.
    """
    own = [name for name in sections if name in own_sections or name == command.section]
    rest = [name for name in sections if name not in own and name != "family"]
    flags = {name: _flags(section, defaults or {}) for name, section in sections.items()}
    blocks = [_usage(command, env_name), *_wrapped(command.description)]
    for name in own:
        blocks += _group(_title(sections[name]), flags[name])
    if not everything:
        blocks += _group(_common_title(env_name), _common(command, [flags[name] for name in rest]))
    if "family" in sections:
        blocks += _group(f"Flags of envs like {env_name}", flags["family"])
    for name in rest if everything else ():
        blocks += _group(_title(sections[name]), flags[name])
    if env_name is None:
        blocks += env_families(command.envs)
        blocks += examples([(command, example) for example in command.examples])
    return "\n".join([*blocks, *_how_to_see_the_rest(command, env_name, everything)])


def _flags(section: type, defaults: Mapping[str, Any]) -> list[FlagHelp]:
    return [
        FlagHelp(field, annotation, defaults.get(field.name, field.default))
        for field, annotation in section_fields(section)
    ]


def _common(command: Command, sections: Iterable[Sequence[FlagHelp]]) -> list[FlagHelp]:
    """Returns the common flags of a command, in the order of `Command.common`."""
    by_name = {flag.field.name: flag for flags in sections for flag in flags}
    return [by_name[name] for name in command.common if name in by_name]


def _common_title(env_name: str | None) -> str:
    return "Common flags" + (" (an env may have other defaults)" if env_name is None else "")


def _title(section: type) -> str:
    """Returns the first words of a section's docstring, up to the first full stop or colon."""
    return re.split(r"[.:]", (section.__doc__ or section.__name__).strip())[0]


def _program(command: Command) -> str:
    """Returns how the command was started: by a script of the user's own, or as a module of this package."""
    main = vars(sys.modules["__main__"])
    if main.get("__spec__") is None and str(main.get("__file__")).endswith(".py"):
        # The words before the first flag select one of the script's own commands.
        return " ".join(["python", *itertools.takewhile(lambda word: word[:1] != "-", sys.argv)])
    return f"python -m {PACKAGE}.{command.module}"


def _usage(command: Command, env_name: str | None) -> str:
    arguments = command.usage.replace("ENV", env_name) if env_name else command.usage
    text = f"usage: {_program(command)} {arguments}".replace("[--flag=value ...]", "[--flag=value\0...]")
    wrapped = textwrap.fill(text, width(), subsequent_indent=" " * 7, break_on_hyphens=False)
    return wrapped.replace("\0", " ")


def _wrapped(text: str) -> list[str]:
    return ["", textwrap.fill(text, width(), break_on_hyphens=False)]


def _group(title: str, flags: Sequence[FlagHelp]) -> list[str]:
    return ["", f"{title}:", *(_entry(_left(flag), _right(flag)) for flag in flags)] if flags else []


def _entry(left: str, text: str) -> str:
    """Returns a line or several: a name on the left, its explanation on the right."""
    indent = " " * TEXT_COLUMN
    lines = textwrap.wrap(text, width() - TEXT_COLUMN, break_on_hyphens=False, break_long_words=False)
    first = f"  {left}"
    if len(first) > TEXT_COLUMN - 2:
        return "\n".join([first, *(indent + line for line in lines)])
    return "\n".join([first.ljust(TEXT_COLUMN) + "".join(lines[:1]), *(indent + line for line in lines[1:])])


def _choices(flag: FlagHelp) -> str:
    return "|".join(map(str, flag.field.metadata["choices"]))


def _left(flag: FlagHelp) -> str:
    """Returns the flag and what to type as its value."""
    scalar, is_list, _ = flag_type(flag.annotation)
    name = f"--{flag.field.name}"
    if scalar is bool and not is_list:
        # Without a value, a switch means True.
        return name if flag.default is False and flag.field.default is False else f"{name}=True|False"
    value = flag.field.metadata["metavar"] or {bool: "BOOL", int: "INT", float: "FLOAT"}.get(scalar, "TEXT")
    if flag.field.metadata["choices"]:
        with_choices = f"{name}={_choices(flag)}"
        return with_choices if len(with_choices) < MIN_WIDTH else f"{name}={value}"
    return f"{name} {value} ..." if is_list else f"{name}={value}"


def _right(flag: FlagHelp) -> str:
    """Returns the explanation of a flag, its choices where they are not on the left, and its default."""
    parts = [flag.field.metadata["help"]]
    choices = flag.field.metadata["choices"]
    if choices and _choices(flag) not in _left(flag):
        parts.append(f"one of {', '.join(map(str, choices))}")
    default = shown_default(flag.default)
    is_bare_switch = _left(flag) == f"--{flag.field.name}"
    return "; ".join(parts) + (f" (default: {default})" if default and not is_bare_switch else "")


def shown_default(value: Any) -> str:
    """Returns a default as it would be typed; an empty string for none."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value))
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value)
    if isinstance(value, (int, float)):
        return "never" if value == NEVER else _shown_number(value)
    text = str(value)
    here = os.getcwd() + os.sep
    return "./" + text.removeprefix(here) if text.startswith(here) else text


def _shown_number(value: float) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:_}" if abs(value) >= 100_000 else str(value)


def env_families(envs: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the block that lists the envs of a command."""
    return ["", "Envs:", *(_entry(name, text) for name, text in envs)] if envs else []


def examples(pairs: Sequence[tuple[Command, Example]], title: str = "Examples") -> list[str]:
    """Returns the block of examples, each a comment and a command to copy."""
    lines = ["", f"{title}:"]
    for command, example in pairs:
        typed = f"python -m {PACKAGE}.{command.module} {example.arguments}"
        lines += [f"  # {example.purpose}", *_continued(typed)]
    return lines


def _continued(typed: str) -> list[str]:
    """Returns a command in lines that a shell joins."""
    lines = textwrap.wrap(
        typed,
        width() - 4,
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _how_to_see_the_rest(command: Command, env_name: str | None, everything: bool) -> list[str]:
    rows = []
    if not everything:
        typed = "--help=all" if env_name is None else f"--env={env_name} --help=all"
        rows.append((typed, "every flag, by topic"))
    if env_name is not None:
        rows.append(("--help", "examples, and the families of envs"))
    else:
        if command.envs:
            rows.append(
                ("--env=doom_battle --help", "the defaults for an env, and the flags that only it has")
            )
        rows.append((f"python -m {PACKAGE}", "the other commands"))
    return ["", "More help:", *(_entry(left, text) for left, text in rows)] if rows else []


def make_command_parser(command: Command) -> argparse.ArgumentParser:
    """Returns a parser, without arguments, for a command that does not take the flags of an experiment."""
    pairs = [(command, example) for example in command.examples]
    return argparse.ArgumentParser(
        prog=f"python -m {PACKAGE}.{command.module}",
        usage=f"%(prog)s {command.usage}",
        description=textwrap.fill(command.description, width()),
        epilog="\n".join([*examples(pairs)[1:], *_how_to_see_the_rest(command, None, everything=True)]),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=TEXT_COLUMN, width=width()
        ),
        allow_abbrev=False,
        exit_on_error=False,
    )


def overview(version: str) -> str:
    """Returns the help of `python -m sample_factory`: all commands, and how to begin."""
    flags = [_flags(section, {}) for section in TRAINING_SECTIONS.values()]
    steps = [(command, command.examples[0]) for command in (TRAIN, ENJOY, PLOT_CURVES)]
    blocks = [
        f"Sample Factory {version}: fast asynchronous reinforcement learning on one machine.",
        "",
        f"usage: python -m {PACKAGE} COMMAND [--flag=value ...]",
        "",
        "Commands:",
        *(_entry(command.name, command.purpose) for command in COMMANDS),
        *_group(f"Common flags of {TRAIN.name} (an env may have other defaults)", _common(TRAIN, flags)),
        *env_families(TRAIN.envs),
        *examples(steps, "How to begin"),
        "",
        "More help:",
        _entry("COMMAND --help", "the common flags and three examples of a command"),
        _entry("COMMAND --env=ENV --help", "the defaults for an env, and the flags that only it has"),
        _entry("COMMAND --help=all", "every flag, by topic"),
    ]
    return "\n".join(blocks)
