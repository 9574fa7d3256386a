"""Backends run the jobs of a grid: their interface, their names, and the backend for this machine."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sample_factory.config.flags import ConfigError, flag
from sample_factory.runner.run_job import Job
from sample_factory.runtime.programs import Program
from sample_factory.runtime.registry import Registry, WrongPath, import_attribute
from sample_factory.runtime.safe_files import open_file

GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class RunnerFlags:
    """How runs are started.

    Slurm and Ray read the flags that begin with their names, besides those of all backends."""

    run: str | None = flag(
        None, "module that describes the runs, or a file that ends in .py", metavar="MODULE"
    )
    train_dir: str = flag("train_dir", "folder for all runs", metavar="FOLDER")
    runner: str = flag(
        "processes",
        "what runs the experiments: processes, slurm, ray, or module:Class",
        aliases=("backend",),
        metavar="BACKEND",
    )
    pause_between: float = flag(1.0, "seconds between two starts")
    max_parallel: int = flag(
        4, "runs at the same time; a grid on Slurm or a Ray cluster leaves it to their queue", at_least=1
    )
    num_gpus: int = flag(1, "GPUs of this machine to use", at_least=1)
    experiments_per_gpu: int = flag(
        -1, "runs that share a GPU; -1: GPUs are not assigned, each run sees all of them"
    )
    slurm_gpus_per_job: int = flag(1, "Slurm: GPUs of each job")
    slurm_cpus_per_gpu: int = flag(14, "Slurm: CPU cores per GPU; of a job without one")
    slurm_workdir: str | None = flag(
        None, "Slurm: folder for scripts and logs; beside the logs if left out", metavar="FOLDER"
    )
    slurm_partition: str | None = flag(None, "Slurm: partition of the cluster")
    slurm_sbatch_template: str | None = flag(
        None,
        "Slurm: script that prepares the environment; $CMD in it, or its end, is where the experiment runs",
        metavar="FILE",
    )
    slurm_timeout: str = flag(
        "0", "Slurm: time after which a job saves, stops and is queued again, e.g. 8h; 0: never"
    )
    ray_address: str | None = flag(
        None, "Ray: a running cluster, e.g. auto; without it, that in RAY_ADDRESS, or one on this machine"
    )
    ray_cpus_per_job: float = flag(1.0, "Ray: CPUs of each run")

    slurm_print_only = False  # a flag of grids

    @property
    def module(self) -> str:
        """Value of --run: the module that describes the runs. Raises ConfigError if the flag is missing."""
        if not self.run:
            raise ConfigError(
                "--run is missing: name a module that describes the runs, like --run=my_grid.py"
            )
        return self.run


@dataclass(frozen=True)
class GridFlags(RunnerFlags):
    """How runs are started."""

    experiment_suffix: str = flag("", "appended to the name of the folder of each Experiment")
    slurm_print_only: bool = flag(False, "Slurm: print the script and commands, submit nothing")


class CannotStart(Exception):
    """Raised by a backend that cannot start a job; the message says why. Other jobs may still be started."""


class Backend(Protocol):
    """Interface of the ways to run the jobs of a grid: as processes, on Slurm, or on Ray. Each job is run as
    `python -m sample_factory.runner.run_job ORDER_FILE`.

    outlives_runner: whether jobs keep running when the runner is stopped by Ctrl+C.
    """

    outlives_runner: bool

    def adopt(self, job: Job) -> bool:
        """Returns whether an earlier runner has started the job, and the job has not ended. If so, watches
        the job like one given to `start`. Raises ConfigError if the job was started with another command."""

    def has_room(self) -> bool:
        """Returns whether another job may be started now."""

    def start(self, job: Job) -> None:
        """Starts or queues a job whose order file is written. Raises CannotStart if the job is refused."""

    def unfinished(self) -> Collection[str]:
        """Returns the names of the jobs that are queued or running."""

    def stop(self, names: Collection[str]) -> None:
        """Asks running jobs to save and stop, and removes queued jobs from the queue. Returns at once."""

    def close(self) -> None:
        """Ends the processes that the backend has started, and deletes the backend's temporary files."""


# arguments: of the command. files: folder for the files of the runner. Raises ConfigError, or ImportError.
BackendFactory = Callable[[RunnerFlags, Path], Backend]
BACKENDS: Mapping[str, str] = {
    "processes": "sample_factory.runner.backend:ProcessBackend",
    "slurm": "sample_factory.runner.slurm:SlurmBackend",
    "ray": "sample_factory.runner.ray_tasks:RayBackend",
}


def find_backend(name: str) -> BackendFactory:
    """Returns the class of a backend. `name`: a key of BACKENDS, or "module:attribute".
    Raises ConfigError if there is no such backend."""
    try:
        factory: BackendFactory = import_attribute(Registry("runner", BACKENDS).find(name))
    except (WrongPath, ModuleNotFoundError) as error:
        raise ConfigError(f"--runner={name}: {error}") from None
    return factory


class ProcessBackend:
    """Runs jobs as processes on this machine, at most --max_parallel at a time.
    With --experiments_per_gpu, each job sees one GPU."""

    outlives_runner = False

    def __init__(self, flags: RunnerFlags, files: Path):
        """Looks up the GPUs. Raises ConfigError if fewer than --num_gpus are visible. files: not used."""
        self._max_parallel: int = flags.max_parallel
        self._per_gpu: int = flags.experiments_per_gpu  # not positive: each run sees all GPUs
        visible = os.environ.get(GPUS)
        names = visible.split(",") if visible else list(map(str, range(flags.num_gpus)))
        if self._per_gpu > 0 and len(names) < flags.num_gpus:
            raise ConfigError(f"--num_gpus={flags.num_gpus}: {GPUS}={visible} has only {len(names)}")
        self._gpus = names[: flags.num_gpus]
        self._gpu_of: dict[str, str] = {}  # the names of running jobs -> their GPUs
        self._running: dict[str, Program] = {}

    def adopt(self, job: Job) -> bool:
        """Returns False: jobs end with the runner that has started them."""
        return False

    def has_room(self) -> bool:
        num_places = len(self._gpus) * self._per_gpu if self._per_gpu > 0 else self._max_parallel
        return len(self.unfinished()) < min(self._max_parallel, num_places)

    def start(self, job: Job) -> None:
        env = dict(os.environ)
        if self._per_gpu > 0:
            env[GPUS] = min(self._gpus, key=list(self._gpu_of.values()).count)  # with the fewest jobs
            self._gpu_of[job.name] = env[GPUS]
        with open_file(job.log, "ab") as log:
            command = [sys.executable, "-m", "sample_factory.runner.run_job", str(job.order)]
            self._running[job.name] = Program(command, log, env)

    def unfinished(self) -> Collection[str]:
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            del self._running[name]
            self._gpu_of.pop(name, None)
        return self._running.keys()

    def stop(self, names: Collection[str]) -> None:
        for name in set(names) & set(self.unfinished()):
            self._running[name].send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kills the jobs that are still running."""
        for name in self.unfinished():
            self._running[name].end()
