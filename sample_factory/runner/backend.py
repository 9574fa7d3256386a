"""Backends, which run the jobs of a grid: their interface, and their names."""

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from sample_factory.config.flags import ConfigError
from sample_factory.config.unknown_flags import nearest
from sample_factory.runner.jobs import Job
from sample_factory.runtime.registry import WrongPath, import_attribute


class CannotStart(Exception):
    """A backend has refused a job; the message says why, in one line. The other jobs are still tried."""


class Backend(Protocol):
    """Runs jobs somewhere: each as `python -m sample_factory.runner.run_job ORDER_FILE`.

    outlives_runner: whether jobs keep running when the runner is stopped by Ctrl+C.
    """

    outlives_runner: bool

    def adopt(self, job: Job) -> bool:
        """Returns whether the job is still queued or running since an earlier start; then it follows it."""
        ...

    def has_room(self) -> bool:
        """Returns whether another job may be started now."""
        ...

    def start(self, job: Job) -> None:
        """Starts or queues the job, whose order has been written. Raises CannotStart."""
        ...

    def unfinished(self) -> Collection[str]:
        """Returns the names of the jobs that are queued or running."""
        ...

    def stop(self) -> None:
        """Asks all jobs to save and stop; discards those in the queue. Returns at once."""
        ...

    def close(self) -> None:
        """Ends what the backend has started, and removes its temporary files."""
        ...


# arguments: of the command. files: folder for the files of the runner. Raises ConfigError, or ImportError.
BackendFactory = Callable[[argparse.Namespace, Path], Backend]
BACKENDS: Mapping[str, str] = {
    "processes": "sample_factory.runner.processes:ProcessBackend",
    "slurm": "sample_factory.runner.slurm:SlurmBackend",
    "ray": "sample_factory.runner.ray_tasks:RayBackend",
}


def find_backend(name: str) -> BackendFactory:
    """Returns the class of a backend: one of BACKENDS, or "module:attribute". Raises ConfigError."""
    if name not in BACKENDS and ":" not in name:
        raise ConfigError(
            f"--runner={name}: no such backend{nearest(name, BACKENDS) or '.'} Use "
            f"{', '.join(BACKENDS)}, or module:Class for your own"
        )
    try:
        factory: BackendFactory = import_attribute(BACKENDS.get(name, name))
    except (WrongPath, ModuleNotFoundError) as error:
        raise ConfigError(f"--runner={name}: {error}") from None
    return factory
