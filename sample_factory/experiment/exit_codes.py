"""How the commands that play end."""

import sys
from collections.abc import Callable

from sample_factory.runtime.command_failed import CommandFailed


def exit_code(command: Callable[[], object]) -> int:
    """Runs a command: 0 done or stopped, 1 CommandFailed, 2 bad input or a missing package; says why."""
    from sample_factory.config.config import ConfigError
    from sample_factory.envs.env_registry import UnknownEnvError

    try:
        command()
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ConfigError, UnknownEnvError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
