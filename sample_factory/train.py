"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.config.commands import TRAIN, Command
from sample_factory.launch.exit_codes import DONE, FAILED, run_command


def train(argv: Sequence[str], command: Command = TRAIN) -> int:
    """Runs the experiment that the flags describe; returns its exit code. command: what the help says."""
    from sample_factory.config.parsing import parse_config
    from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
    from sample_factory.runtime.log import setup_logging

    setup_logging("main")
    has_env = any(word.partition("=")[0] == "--env" for word in argv)  # otherwise it is in a cfg.json
    config = parse_config(argv, resolve_family if has_env else resolve_trained_family, command=command)
    from sample_factory.launch.shared_imports import shared_imports

    with shared_imports(config):
        from sample_factory.training.run import train_config  # imports much, which --help does not need

        return FAILED if train_config(config).status == "failed" else DONE


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 failed, 2 bad input.

    argv: flags; None: those of the command line. env: a class of envs or a function, in place of --env.
    """
    return run_command(train, argv, env)


class _CallableModule(types.ModuleType):
    """Lets `sample_factory.train(MyEnv, "mine", ...)` do what `sample_factory.run` does."""

    def __call__(self, *arguments: Any, **flags: Any) -> Any:
        from sample_factory.training.run import run

        return run(*arguments, **flags)


sys.modules[__name__].__class__ = _CallableModule


if __name__ == "__main__":
    sys.exit(main())
