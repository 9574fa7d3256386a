"""Runs commands: reads their flags, and calls their functions."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.config.command import Command
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import show
from sample_factory.config.parsing import parse_config, parse_own_flags
from sample_factory.config.versions import other_distributions
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.launch.exit_codes import run_command
from sample_factory.launch.explanation import explained, with_explanation
from sample_factory.runtime.log import log, setup_logging
from sample_factory.runtime.registry import resolve


def parse(command: Command, argv: Sequence[str]) -> Any:
    """Parses the flags of a command. Returns a Config; for a command without experiment, its flags section.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    if not command.experiment:
        return parse_own_flags(argv, command)
    has_env = any(word.partition("=")[0] == "--env" for word in argv)  # otherwise it is in a cfg.json
    find = resolve_family if has_env and command.experiment != "saved" else resolve_trained_family
    return parse_config(argv, find, with_explanation(command))


def main_of(command: Command) -> Callable[..., int]:
    """Returns a function `main(argv=None, env=None)` for a command's module, which calls `run`."""
    return functools.partial(run, command)


def run(command: Command, argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Runs a command and returns its exit code, see `run_command`.

    argv: flags; None: those of the command line. env: a class of envs or a function, in place of --env.
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
