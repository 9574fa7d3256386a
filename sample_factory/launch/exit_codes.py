"""Exit codes of the commands, and the one line that says why a command failed."""

import sys
from collections.abc import Callable, Sequence

from sample_factory.config.flags import ConfigError
from sample_factory.launch.failure_log import log_failures
from sample_factory.runtime.failures import ChildFailed, Explained, describe_exception, out_of_address_space
from sample_factory.runtime.log import escaped

DONE = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130  # as shells report a program that was ended by Ctrl+C


def run_command(command: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; prints expected failures to stderr.

    command: called with the arguments; returns an exit code, or None for 0.
    argv: the arguments; None: those of this process.

    A failure is one line. A short traceback follows if user code raised an exception.

    0: done, or stopped by a signal that the command handles. 1: ChildFailed, an Explained such as
    CommandFailed, or too little memory. 2: ConfigError, UnknownEnvError or a missing package. 130: Ctrl+C
    that the command does not handle.
    """
    from sample_factory.envs.env_registry import UnknownEnvError

    try:
        code = command(sys.argv[1:] if argv is None else argv)
    except ChildFailed as failure:
        log_failures([failure])
        return FAILED
    except (ConfigError, UnknownEnvError, ImportError) as error:
        no_memory = out_of_address_space(error)
        print(escaped(f"error: {no_memory or error}"), file=sys.stderr)
        return FAILED if no_memory else BAD_INPUT
    except (Explained, MemoryError) as error:
        failed = describe_exception(error)
        lines = filter(None, [f"error: {failed.error}", failed.short_traceback])
        print(escaped("\n".join(lines)), file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return DONE if code is None else code
