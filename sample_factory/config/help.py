"""The text that --help prints: the flags of a command, with the defaults of an env. Laid out by argparse."""

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
    examples = [line for command in first_steps for line in _examples(command)[:2]]
    usage = f"python -m {PACKAGE} COMMAND [--flag=value ...]"
    parser = _make_parser(usage, first, ["How to begin:", *examples])
    _add_rows(parser, "Commands", commands.items())
    title = f"Common flags of {train.name}{OTHER_DEFAULTS}"
    _add_group(parser, title, TRAINING_SECTIONS.values(), {}, train.common)
    _add_rows(parser, "Envs", train.envs)
    more = [
        ("COMMAND --help", "the common flags and three examples of a command"),
        ("COMMAND --env=ENV --help", "the defaults for an env, and the flags that only it has"),
        ("COMMAND --help=all", "every flag, by topic"),
    ]
    _add_rows(parser, "More help", more)
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
    defaults = {**(_by_observation() if follows_observation else {}), **(defaults or {})}
    usage = f"{_program(command)} {command.usage.replace('ENV', env_name or 'ENV')}"
    examples = ["Examples:", *_examples(command)] if env_name is None else []
    parser = _make_parser(usage, command.description, examples)
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
    more = [("--help=all", "every flag, by topic")] * (not everything)
    if env_name is not None:
        more.append(("--help", "examples, and the families of envs"))
    else:
        _add_rows(parser, "Envs", command.envs)
        if command.envs:
            text = "the defaults for an env, and the flags that only it has"
            more.append(("--env=doom_battle --help", text))
        more.append((f"python -m {PACKAGE}", "the other commands"))
    _add_rows(parser, "More help", more)
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


def _make_parser(usage: str, description: str, after: Iterable[str]) -> argparse.ArgumentParser:
    """Returns a parser without flags. after: lines at the end of the help."""
    width = _width()
    first = textwrap.fill(f"usage: {usage}", width, subsequent_indent=" " * 7, break_on_hyphens=False)
    return argparse.ArgumentParser(
        usage=first.removeprefix("usage: ").replace("%", "%%"),
        description=textwrap.fill(description, width),
        epilog="\n".join(after),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=TEXT_COLUMN, width=width
        ),
        add_help=False,
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
    defaults: Mapping[str, Any],
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
        default = as_typed(defaults.get(field.name, default_of(field)))
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


def _add_rows(parser: argparse.ArgumentParser, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Adds names with their explanations, as if they were flags."""
    group = parser.add_argument_group(title)
    for name, text in rows:
        group.add_argument("row", metavar=name, help=text.replace("%", "%%"))


def _examples(command: Command) -> list[str]:
    """Returns the examples of a command, in turns a comment and a command to copy."""
    lines = []
    for line in map(str.strip, command.examples.strip().splitlines()):
        if not line.startswith("#"):
            words = " ".join(f"python -m {PACKAGE}.{command.module} {line}".split())
            rows = textwrap.wrap(words, _width() - 8, break_long_words=False, break_on_hyphens=False)
            line = " \\\n      ".join(rows)
        lines.append(f"  {line}")
    return lines
