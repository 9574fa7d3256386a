"""Runs a command: python -m sample_factory COMMAND [flags]. Without one, lists the commands."""

import importlib
import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command


def dispatch(argv: Sequence[str]) -> int:
    """Runs the command that the first argument names; returns its exit code. Raises ConfigError."""
    from sample_factory import __version__
    from sample_factory.config.commands import COMMANDS
    from sample_factory.config.flags import ConfigError
    from sample_factory.config.help import overview, show
    from sample_factory.config.unknown_flags import nearest

    if not argv or argv[0] in ("-h", "--help", "--help=all", "help"):
        show(overview(__version__))
        return 0
    if argv[0] == "--version":
        show(__version__)
        return 0
    modules = {command.name: command.module for command in COMMANDS}
    name = argv[0].rpartition(".")[2]  # also where the package is named: plotting.plot_curves
    if name.startswith("-"):
        raise ConfigError(f"a command is missing before {name}, e.g. python -m sample_factory train {name}")
    if name not in modules:
        raise ConfigError(
            f"unknown command {name}{nearest(name, modules) or '.'} Known: {', '.join(modules)}"
        )
    code: int = importlib.import_module(f"sample_factory.{modules[name]}").main(argv[1:])
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code of the command; 2 if there is no such command."""
    return run_command(dispatch, argv)


if __name__ == "__main__":
    sys.exit(main())
