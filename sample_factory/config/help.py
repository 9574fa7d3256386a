"""The text that --help prints: the flags of a command, with the defaults of an env."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sample_factory.config.command import ENV_FAMILIES, Command
from sample_factory.config.flag_parser import add_flag
from sample_factory.config.flags import NEVER, default_of, section_fields
from sample_factory.config.observation_defaults import SETS
from sample_factory.config.sections import flags_of

METAVARS = {bool: "True|False", int: "INT", float: "FLOAT"}
EVERYTHING = "all"  # the value in --help=all
# The flags that a short help shows, of those that the command reads.
COMMON = (
    *("env", "experiment", "train_dir", "policy_index", "checkpoint", "load_checkpoint_kind"),
    *("no_render", "fps", "overlay", "save_video", "video_frames", "video_name", "render_action_repeat"),
    *("max_num_episodes", "max_num_frames", "eval_episodes", "eval_deterministic", "eval_env_frameskip"),
    *("train_for_env_steps", "num_workers", "num_envs_per_worker", "env_frameskip", "batch_size"),
    *("learning_rate", "device", "seed"),
)
PACKAGE = "sample_factory"


def show(text: str) -> None:
    """Prints a text. A reader that closes the pipe early, such as `head`, causes no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise the interpreter reports an error when it flushes the output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def overview(version: str, commands: Mapping[str, str], first_steps: Sequence[Command]) -> str:
    """Returns the help of `python -m sample_factory`: all commands, and how to begin.

    commands: name -> what the command does. first_steps: commands whose first examples are shown.
    """
    parser = argparse.ArgumentParser(
        usage=f"python -m {PACKAGE} COMMAND [--flag=value ...]",
        description=f"Sample Factory {version}: fast asynchronous reinforcement learning on one machine.",
        epilog="COMMAND --help: its common flags and three examples. COMMAND --env=ENV --help: the defaults "
        "for an env, and the flags that only it has. COMMAND --help=all: every flag, by topic.",
        add_help=False,
    )
    _add_rows(parser, "Commands", commands.items())
    examples = [line for command in first_steps for line in _examples(command)[:2]]
    return "\n".join([parser.format_help(), "How to begin:", *examples])


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
    env_name: the env whose flags and defaults are shown; None: the help for all envs.
    defaults: flag -> default of the env, instead of the default of the section.
    everything: show every flag, by section, and not only the common ones.
    follows_observation: the env has the defaults of observation_defaults.py for flags without other defaults.
    """
    defaults = {**(_by_observation() if follows_observation else {}), **(defaults or {})}
    more = "--help=all: every flag, by topic. " * (not everything)
    if env_name is not None:
        more += "--help: examples."
    elif command.experiment:
        more += "--env=ENV --help: the defaults for an env, and the flags that only it has."
    parser = argparse.ArgumentParser(
        usage=_usage(command), description=command.description, epilog=more, add_help=False
    )
    for name in command.sections:
        _add_group(parser, title_of(sections[name]), [sections[name]], defaults)
    own = {*command.sections, "family"}
    shared = {name: section for name, section in sections.items() if name not in own}
    if not everything:
        title = "Common flags" + " (an env may have other defaults)" * (env_name is None)
        read = [flag for name in shared for flag in flags_of(shared[name]) if command.uses(flag, name)]
        _add_group(parser, title, shared.values(), defaults, [flag for flag in COMMON if flag in read])
    if "family" in sections:
        _add_group(parser, f"Flags of envs like {env_name}", [sections["family"]], defaults)
    for section in shared.values() if everything else ():
        _add_group(parser, title_of(section), [section], defaults)
    if env_name is not None:
        return parser.format_help().rstrip()
    if command.experiment == "resumed":
        _add_rows(parser, "Envs", ENV_FAMILIES)
    return "\n".join([parser.format_help(), "Examples:", *_examples(command)])


def _by_observation() -> dict[str, Any]:
    """Returns the defaults of observation_defaults.py: flag -> default, or a text that lists a default for
    each kind of observation."""
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
        "sample_ahead": "True for simulators without a GPU, where possible; else False",
    }


def _usage(command: Command) -> str:
    """Returns the usage line of a command: how the process was started, by a user's script or `python -m`,
    and which arguments may follow."""
    main = vars(sys.modules["__main__"])
    program = f"python -m {PACKAGE} {command.name}"
    if main.get("__spec__") is None and str(main.get("__file__")).endswith(".py"):
        # The words before the first flag select one of the script's own commands.
        program = " ".join(["python", *itertools.takewhile(lambda word: word[:1] != "-", sys.argv)])
    fields = [field for section in command.sections.values() for field, _ in section_fields(section)]
    words = [f"[{field.metadata['metavar']} ...]" for field in fields if field.metadata["is_positional"]]
    return " ".join([program.replace("%", "%%"), *words, "[--flag=value ...]"])


def title_of(section: type) -> str:
    """Returns the first words of a section's docstring, up to the first full stop or colon."""
    return re.split(r"[.:]", (section.__doc__ or section.__name__).strip())[0]


def _add_group(
    parser: argparse.ArgumentParser,
    title: str,
    sections: Iterable[type],
    defaults: Mapping[str, Any],
    names: Sequence[str] = (),
) -> None:
    """Adds a group of flags with their explanations to the help.

    defaults: flag -> default, instead of the default of the section. names: the flags to add, in this order;
    all flags of the sections if empty.
    """
    fields = {field.name: (field, kind) for section in sections for field, kind in section_fields(section)}
    has_words = any(field.metadata["is_positional"] for field, _ in fields.values())
    group = parser.add_argument_group(title)
    for field, kind in [fields[name] for name in names or fields if name in fields]:
        text = field.metadata["help"]
        choices = ", ".join(map(str, field.metadata["choices"]))
        text += f"; one of {choices}" if choices else ""
        metavar = field.metadata["metavar"] or METAVARS.get(kind.scalar, "TEXT")
        default = as_typed(defaults.get(field.name, default_of(field)))
        text += f" (default: {default})" if default else ""
        add_flag(group, field, kind, has_words, help=text.replace("%", "%%"), metavar=metavar)


def as_typed(value: Any) -> str:
    """Formats a default as a user would type the value; returns an empty string for None."""
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
    """Adds a group of names with explanations to the help, in the layout of flags."""
    group = parser.add_argument_group(title)
    for name, text in rows:
        group.add_argument("row", metavar=name, help=text.replace("%", "%%"))


def _examples(command: Command) -> list[str]:
    """Returns the lines of a command's examples: comments, each followed by a command to copy."""
    lines = [" ".join(line.split()) for line in command.examples.strip().splitlines()]
    prefix = f"python -m {PACKAGE} {command.name} "
    return [f"  {line}" if line.startswith("#") else f"  {prefix}{line}".rstrip() for line in lines]
