"""Runs jobs as tasks of Ray: on a cluster, or on this machine."""

import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sample_factory.runner.backend import GPUS, RunnerFlags
from sample_factory.runner.run_job import Job
from sample_factory.runtime.local_ray import LocalRay, find_cluster
from sample_factory.runtime.programs import Program

STORE_BYTES = 80 * 2**20  # near Ray's minimum; no data goes through Ray
POLL_SECONDS = 0.2
QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "error"}
THREADS = "OMP_NUM_THREADS"  # set by Ray for its workers


class RayBackend:
    """Hands all jobs to Ray, which starts each job when its CPUs and GPUs are free.

    Without --ray_address or RAY_ADDRESS, starts a Ray cluster on this machine, with CPUs for --max_parallel
    jobs.
    """

    outlives_runner = False

    def __init__(self, flags: RunnerFlags, files: Path):
        """Connects to the cluster, or starts Ray with its files in `files`. Raises CommandFailed if that
        fails, ImportError if Ray is not installed."""
        try:
            import ray
        except ImportError as error:
            raise ImportError(f"--runner=ray needs Ray ({error}): pip install -e '.[ray]'") from None
        self._ray: Any = ray
        self._cpus: float = flags.ray_cpus_per_job
        per_gpu = flags.experiments_per_gpu
        self._gpus = 1 / per_gpu if per_gpu > 0 else 0.0
        self._tasks: dict[str, Any] = {}
        self._own: LocalRay | None = None
        cluster = find_cluster(flags.ray_address)
        if cluster is not None:
            cluster.connect(QUIET)
            return
        num_cpus = max(1, round(flags.max_parallel * self._cpus))
        num_gpus = flags.num_gpus if self._gpus else None
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "object_store_memory": STORE_BYTES, **QUIET}
        self._own = LocalRay("--runner=ray", files, options)

    def adopt(self, job: Job) -> bool:
        """Returns False: jobs end with the runner that has started them."""
        return False

    def has_room(self) -> bool:
        return True

    def start(self, job: Job) -> None:
        # A job that has failed is not repeated: the next start of the runner does that.
        resources = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_retries": 0}
        task = self._ray.remote(**resources)(_run_on_worker)
        values = {name: os.environ.get(name) for name in (THREADS, GPUS)}
        self._tasks[job.name] = task.remote(str(job.order), values)

    def unfinished(self) -> Collection[str]:
        tasks = list(self._tasks.values())
        ended, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0) if tasks else ([], [])
        self._tasks = {name: task for name, task in self._tasks.items() if task not in ended}
        return self._tasks.keys()

    def stop(self, names: Collection[str]) -> None:
        for name in set(names) & set(self._tasks):
            self._ray.cancel(self._tasks[name])

    def close(self) -> None:
        if self._own is None:
            self._ray.shutdown()
        else:
            self._own.close()


def _run_on_worker(order: str, values: Mapping[str, str | None]) -> None:
    """In a worker of Ray: runs a job; stops the job if the task is cancelled.

    order: path of the order file.
    values: OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES in the runner's environment, to replace the values that
        Ray sets: Ray before version 2.60 hides all GPUs from a task that asks for none. None: the variable is
        not set.
    """
    env = {**os.environ, THREADS: values[THREADS]}
    if env.get(GPUS) == "":
        env[GPUS] = values[GPUS]
    command = [sys.executable, "-m", "sample_factory.runner.run_job", order]
    process = Program(command, env={name: value for name, value in env.items() if value is not None})
    try:
        # Not process.wait(): Ray interrupts the interpreter, not a call of the system.
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
    finally:
        process.end((signal.SIGTERM, None))
