"""Logs why a run has failed: one line, and the traceback where it helps."""

import logging
from collections.abc import Sequence

from sample_factory.runtime.failures import ChildFailed
from sample_factory.runtime.log import details

log = logging.getLogger("sample_factory")

# By name, because this process does not load torch.
OUT_OF_GPU_MEMORY = "torch.OutOfMemoryError"
ENV_PROBE = "env_probe"


def log_failures(
    failures: Sequence[ChildFailed], env_name: str | None = None, has_log_file: bool = False
) -> None:
    """Logs why the run has failed, one line for failures with the same reason, with advice if there is some.

    env_name: of the run, if it is known here.
    has_log_file: whether the log is written to a file that stays: it gets the whole traceback. Otherwise the
        console gets a short one, unless the exception explains itself.
    """
    shown: set[str] = set()
    for failure in failures:
        if failure.reason in shown:
            continue
        shown.add(failure.reason)
        line = describe(failure, env_name)
        if has_log_file:
            log.error(line, extra=details(failure.traceback))
        else:
            log.error("\n".join(filter(None, [line, failure.short_traceback])))
    if any(failure.caused_by(OUT_OF_GPU_MEMORY) for failure in failures):
        log.error(
            "The GPU is out of memory. Learners take most of it: lower --batch_size. Every policy worker has "
            "its own copy of the model: lower --policy_workers_per_policy. nvidia-smi lists all processes "
            "that use the GPU"
        )


def describe(failure: ChildFailed, env_name: str | None) -> str:
    """Returns one line that says what failed and why."""
    if failure.is_explained:
        return failure.reason
    if failure.name != ENV_PROBE or env_name is None:
        return f"{failure.name} failed: {failure.reason}"
    is_named = failure.caller.isidentifier()  # not so for <lambda>
    called = f"{failure.caller}() raised " if is_named else ""
    return f"env {env_name}: {called}{failure.reason}"
