"""Runs commands: reads their flags, answers --explain, and calls their functions."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sample_factory.config.command import Command
from sample_factory.config.config import Choice, Config, as_text
from sample_factory.config.experiment_folder import SAVED
from sample_factory.config.flags import ConfigError, default_of, flag
from sample_factory.config.help import show
from sample_factory.config.parsing import parse_config, parse_own_flags
from sample_factory.config.versions import other_distributions
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.launch.exit_codes import run_command
from sample_factory.monitoring.console import aligned
from sample_factory.runtime.log import log, setup_logging
from sample_factory.runtime.registry import resolve


def parse(command: Command, argv: Sequence[str]) -> Any:
    """Parses the flags of a command. Returns a Config; for a command without experiment, its flags section.
    On --help, prints the help and exits with code 0.

    Raises ConfigError for unknown flags and values that are not allowed.
    """
    if not command.experiment:
        return parse_own_flags(argv, command)
    has_env = any(word.partition("=")[0] == "--env" for word in argv)  # otherwise it is in a cfg.json
    find = resolve_family if has_env and command.experiment != "saved" else resolve_trained_family
    return parse_config(argv, find, with_explanation(command))


def main_of(command: Command) -> Callable[..., int]:
    """Returns the function `main(argv=None, env=None)` of a command, which calls `run`."""
    return functools.partial(run, command)


def run(command: Command, argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Runs a command and returns its exit code: 0 if all went well, for others see `run_command`.

    argv: the flags; None: those of the command line.
    env: a class of envs or a function that makes one, in place of --env.
    """
    return run_command(functools.partial(_run, command), argv, env)


def _run(command: Command, argv: Sequence[str]) -> int | None:
    setup_logging(command.name)
    if sys.platform != "linux":
        raise ConfigError(f"this version needs Linux, and this is {sys.platform}")
    for other in other_distributions():
        log.warning("%s has installed a package sample_factory too: install it in another environment", other)
    given = parse(command, argv)
    if isinstance(given, Config):
        given, text = explained(given)
        if text is not None:
            show(text)
            return None
    # Not before: it may load torch, and wrong flags are reported at once.
    function: Callable[[Any], int | None] = resolve(command.run)
    return function(given)


SECTION = "explanation"


@dataclass(frozen=True)
class ExplanationFlags:
    """Flags of a command that only prints."""

    explain: bool = flag(False, "print what has set each flag, and run nothing")


def with_explanation(command: Command) -> Command:
    """Returns a command of an experiment with the flag --explain added."""
    return command._replace(sections={**command.sections, SECTION: ExplanationFlags})


def explained(config: Config) -> tuple[Config, str | None]:
    """Handles --explain: returns the configuration without the flag's section, and the text to print in place
    of running the command; the text is None without --explain.

    For a training, this tries out the env, since the env decides about flags too: raises ConfigError,
    Failure, ImportError or CommandFailed if the training could not start.
    """
    flags = config.extra[SECTION]
    others = {name: section for name, section in config.extra.items() if name != SECTION}
    config = dataclasses.replace(config, extra=others)
    if not flags.explain:
        return config, None
    if config.command.experiment != "resumed":
        return config, explanation(config)
    from sample_factory.launch.plan import plan_run  # imports what sampling needs

    return config, explanation(plan_run(config, resolve_family(config.env_name)).config)


def explanation(config: Config) -> str:
    """Returns a table of flags: value, layer that has set it (such as a --cfg file or the command line), and
    the value without this layer. Leaves out flags that have their default and that no layer has changed."""
    rows = [("flag", "value", "set by", "otherwise")]
    for section in config.sections.values():
        for field in dataclasses.fields(section):
            default = Choice("", default_of(field))
            below, choice = (default, default, *config.choices.get(field.name, ()))[-2:]
            if choice.value != default.value or choice.value != below.value:
                otherwise = f"{as_text(below.value)} {_name(below) and f'({_name(below)})'}"
                rows.append((f"--{field.name}", as_text(choice.value), _name(choice), otherwise))
    return "\n".join(aligned(rows, "<"))


def _name(choice: Choice) -> str:
    """Returns the name of a choice's layer for the table of --explain, without the path of a cfg.json."""
    return SAVED if choice.layer.startswith(SAVED) else choice.layer
