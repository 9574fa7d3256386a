"""Exit codes of the commands, and the log lines that say why a command or a run has failed."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.runtime.failures import Explained, Failure, ends_in_user_code, exceeded_limit
from sample_factory.runtime.log import details, escaped, log

DONE = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130  # as shells report a program that was ended by Ctrl+C
# A name, because this process does not load torch.
OUT_OF_GPU_MEMORY = "torch.OutOfMemoryError"


def run_command(
    command: Callable[[Sequence[str]], int | None],
    argv: Sequence[str] | None = None,
    env: Callable[..., Any] | None = None,
) -> int:
    """Runs a command and returns its exit code. An expected failure is printed to stderr in one line,
    followed by a short traceback if user code has raised an exception.

    command: called with the arguments; returns an exit code, or None for 0.
    argv: the arguments; None: the arguments of this process.
    env: a class of envs or a function that makes one, in place of --env.

    Exit codes: 0: done, or stopped by a signal that the command handles. 1: Failure, another Explained such
    as CommandFailed, too little memory, a limit (see `exceeded_limit`), or `sys.exit` in user code. 2:
    ConfigError, UnknownEnvError or a missing package. 130: Ctrl+C that the command does not handle.
    """
    from sample_factory.launch.objects_of_call import with_names

    try:
        arguments = sys.argv[1:] if argv is None else argv
        named = with_names({} if env is None else {"env": env}, arguments)
        code = command([*(f"--{flag}={name}" for flag, name in named.items()), *arguments])
    except Failure as failure:
        log_failures([failure])
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        limit = exceeded_limit(error)
        if isinstance(error, (ConfigError, ImportError)) and not limit:
            print(escaped(f"error: {error}"), file=sys.stderr)
            return BAD_INPUT
        is_known = isinstance(error, (Explained, MemoryError)) or limit
        if not is_known and not (isinstance(error, SystemExit) and ends_in_user_code(error)):
            raise
        shown = Failure.of(error, "")
        print(escaped("\n".join(filter(None, [f"error: {shown}", shown.short_traceback]))), file=sys.stderr)
        return FAILED
    return DONE if code is None else code


def log_failures(failures: Sequence[Failure], has_log_file: bool = False) -> None:
    """Logs why a run has failed: one line per reason, and advice for a GPU that is out of memory.

    has_log_file: whether there is a log file that stays: the whole traceback is written there. Otherwise the
        console gets a short one, unless the exception explains itself.
    """
    shown: set[str] = set()
    for failure in failures:
        if failure.message in shown:
            continue
        shown.add(failure.message)
        if has_log_file:
            log.error("%s", failure, extra=details(failure.traceback))
        else:
            log.error("%s", "\n".join(filter(None, [str(failure), failure.short_traceback])))
    if any(failure.caused_by(OUT_OF_GPU_MEMORY) for failure in failures):
        log.error(
            "The GPU is out of memory. Learners take most of it: lower --batch_size. Every policy worker has "
            "its own copy of the model: lower --policy_workers_per_policy. nvidia-smi lists all processes "
            "that use the GPU"
        )
