"""The text that --help prints: the flags of a command, with the defaults of an env."""

import argparse
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sample_factory.config.command import Command
from sample_factory.config.flag_parser import add_flag
from sample_factory.config.flags import NEVER, default_of, section_fields
from sample_factory.config.observation_defaults import SETS
from sample_factory.config.sections import TRAINING_SECTIONS

MIN_WIDTH = 60
MAX_WIDTH = 120
TEXT_COLUMN = 30  # where the explanation of a flag begins
METAVARS = {bool: "True|False", int: "INT", float: "FLOAT"}
EVERYTHING = "all"  # the value in --help=all
PACKAGE = "sample_factory"
OTHER_DEFAULTS = " (an env may have other defaults)"


def show(text: str) -> None:
    """Prints a text; a reader that ends early, such as `head`, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise the interpreter reports an error when it flushes the output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def overview(version: str, commands: Mapping[str, str], first_steps: Sequence[Command]) -> str:
    """Returns the help of `python -m sample_factory`: all commands, and how to begin.

    commands: name -> what it does. first_steps: commands whose first examples are shown; the first one also
    with its common flags and envs.
    """
    first = f"Sample Factory {version}: fast asynchronous reinforcement learning on one machine."
    train = first_steps[0]
    steps = [line for command in first_steps for line in _examples(command)[:2]]
    more = [
        ("COMMAND --help", "the common flags and three examples of a command"),
        ("COMMAND --env=ENV --help", "the defaults for an env, and the flags that only it has"),
        ("COMMAND --help=all", "every flag, by topic"),
    ]
    parser = _make_parser(
        f"python -m {PACKAGE}",
        "COMMAND [--flag=value ...]",
        [first, *_rows("Commands", commands.items())],
        [*_rows("Envs", train.envs), "", "How to begin:", *steps, *_rows("More help", more)],
    )
    title = f"Common flags of {train.name}{OTHER_DEFAULTS}"
    _add_group(parser, title, TRAINING_SECTIONS.values(), None, train.common)
    return parser.format_help().rstrip()


def command_help(
    command: Command,
    sections: Mapping[str, type],
    env_name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    everything: bool = False,
    follows_observation: bool = False,
) -> str:
    """Returns the help of a command.

    sections: name -> section, all that the command accepts; "family" is the section of the env's family.
    env_name: None: the help for all envs.
    defaults: flag -> default of the env, instead of the default of the section.
    everything: every flag by section, not only the common ones.
    follows_observation: other flags have the defaults of observation_defaults.py.
    """
    given = defaults or {}
    if follows_observation:
        defaults = {**_by_observation(), **given}
    usage, after = command.usage, _more_help(command, env_name, everything)
    if env_name is None:
        after = [*_rows("Envs", command.envs), "", "Examples:", *_examples(command), *after]
    else:
        usage = usage.replace("ENV", env_name)
    parser = _make_parser(_program(command), usage, [_filled(command.description)], after)
    own = [name for name in sections if name in command.sections or name == command.section]
    shared = [section for name, section in sections.items() if name not in (*own, "family")]
    for name in own:
        _add_group(parser, title_of(sections[name]), [sections[name]], defaults)
    if not everything:
        title = "Common flags" + OTHER_DEFAULTS * (env_name is None)
        _add_group(parser, title, shared, defaults, command.common)
    if "family" in sections:
        _add_group(parser, f"Flags of envs like {env_name}", [sections["family"]], defaults)
    for section in shared if everything else ():
        _add_group(parser, title_of(section), [section], defaults)
    return parser.format_help().rstrip()


def _by_observation() -> dict[str, Any]:
    """Returns flag -> default, as a text if it depends on the observation."""
    texts = {}
    for flag in dict.fromkeys(flag for flags in SETS.values() for flag in flags):
        values = {observed: as_typed(flags[flag]) for observed, flags in SETS.items() if flag in flags}
        listed = ", ".join(f"{value} for {observed}" for observed, value in values.items())
        is_same = len({*values.values()}) == 1 and values.keys() >= {"vectors", "pictures"}
        texts[flag] = next(iter(values.values())) if is_same else listed
    return {
        **texts,
        "batch_size": f"{texts['batch_size']}; simulators: a quarter of one rollout of all copies",
        "async_rl": "False for continuous actions, and for pictures without a GPU, where possible; else True",
    }


def _make_parser(
    program: str, usage: str, before: Iterable[str], after: Iterable[str]
) -> argparse.ArgumentParser:
    """Returns a parser without flags. before, after: lines of the help before and after its flags."""
    first = _filled(f"usage: {program} {usage}", "", " " * 7)
    return argparse.ArgumentParser(
        usage=first.removeprefix("usage: ").replace("%", "%%"),
        description="\n".join(before),
        epilog="\n".join(after).strip(),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=TEXT_COLUMN, width=_width()
        ),
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )


def _width() -> int:
    """Returns the number of columns to use; no more than the terminal has."""
    return max(MIN_WIDTH, min(shutil.get_terminal_size().columns, MAX_WIDTH))


def _program(command: Command) -> str:
    """Returns how the command was started: by a script of the user's own, or as a module of this package."""
    main = vars(sys.modules["__main__"])
    if main.get("__spec__") is None and str(main.get("__file__")).endswith(".py"):
        # The words before the first flag select one of the script's own commands.
        return " ".join(["python", *itertools.takewhile(lambda word: word[:1] != "-", sys.argv)])
    return f"python -m {PACKAGE}.{command.module}"


def title_of(section: type) -> str:
    """Returns the first words of a section's docstring, up to the first full stop or colon."""
    return re.split(r"[.:]", (section.__doc__ or section.__name__).strip())[0]


def _add_group(
    parser: argparse.ArgumentParser,
    title: str,
    sections: Iterable[type],
    defaults: Mapping[str, Any] | None = None,
    names: str = "",
) -> None:
    """Adds flags with their explanations.

    defaults: flag -> default, instead of the default of its section. names: which flags, in this order; all
    if empty.
    """
    fields = {field.name: (field, kind) for section in sections for field, kind in section_fields(section)}
    group = parser.add_argument_group(title)
    for field, kind in [fields[name] for name in names.split() or fields if name in fields]:
        text = field.metadata["help"]
        choices = "|".join(map(str, field.metadata["choices"]))
        metavar = field.metadata["metavar"] or METAVARS.get(kind.scalar, "TEXT")
        if len(choices) >= MIN_WIDTH:
            text += f"; one of {choices.replace('|', ', ')}"
        elif choices:
            metavar = choices
        default = as_typed((defaults or {}).get(field.name, default_of(field)))
        text += f" (default: {default})" if default else ""
        add_flag(group, field, kind, help=text.replace("%", "%%"), metavar=metavar)


def as_typed(value: Any) -> str:
    """Returns a default as it would be typed; an empty string for none."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value))
    if value == NEVER:
        return "never"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 100_000:
        return f"{value:_}"
    return re.sub(f"^{re.escape(os.getcwd() + os.sep)}", "./", str(value))


def _rows(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a block of the help: names on the left, explanations on the right."""
    indent = " " * TEXT_COLUMN
    lines = [_filled(text, f"  {name}  ".ljust(TEXT_COLUMN), indent) for name, text in rows]
    return ["", f"{title}:", *lines] if lines else []


def _filled(text: str, first_indent: str = "", indent: str = "", spare: int = 0) -> str:
    """Returns a text in lines that leave `spare` columns free."""
    columns = _width() - spare
    return textwrap.fill(
        text, columns, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _examples(command: Command) -> list[str]:
    """Returns the examples of a command, in turns a comment and a command to copy."""
    lines = []
    for line in map(str.strip, command.examples.strip().splitlines()):
        if not line.startswith("#"):
            line = f"python -m {PACKAGE}.{command.module} {line}"
            line = _filled(" ".join(line.split()), "", "    ", spare=4).replace("\n", " \\\n")
        lines.append(textwrap.indent(line, "  "))
    return lines


def _more_help(command: Command, env_name: str | None, everything: bool) -> list[str]:
    """Returns the block that says how to see the rest."""
    typed = "--help=all" if env_name is None else f"--env={env_name} --help=all"
    rows = [] if everything else [(typed, "every flag, by topic")]
    if env_name is not None:
        return _rows("More help", [*rows, ("--help", "examples, and the families of envs")])
    if command.envs:
        rows.append(("--env=doom_battle --help", "the defaults for an env, and the flags that only it has"))
    return _rows("More help", [*rows, (f"python -m {PACKAGE}", "the other commands")])
