"""Runs jobs as processes of this machine, optionally spread over its GPUs."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from sample_factory.config.flags import ConfigError
from sample_factory.runner.jobs import Job
from sample_factory.runtime.child import kill_group

GPUS = "CUDA_VISIBLE_DEVICES"


class ProcessBackend:
    """At most --max_parallel jobs at a time; with --experiments_per_gpu each of them has one GPU."""

    outlives_runner = False

    def __init__(self, arguments: argparse.Namespace, files: Path):
        """Raises ConfigError if fewer GPUs are visible than --num_gpus."""
        self._max_parallel: int = arguments.max_parallel
        self._gpus = GpuSlots(arguments.num_gpus, arguments.experiments_per_gpu, os.environ.get(GPUS))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def adopt(self, job: Job) -> bool:
        """Returns False: jobs end with the runner that has started them."""
        return False

    def has_room(self) -> bool:
        return len(self.unfinished()) < self._max_parallel and self._gpus.has_room()

    def start(self, job: Job) -> None:
        with open(job.log, "ab") as log:
            self._running[job.name] = subprocess.Popen(
                [sys.executable, "-m", "sample_factory.runner.run_job", str(job.order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._gpus.take(job.name)},
                start_new_session=True,  # Ctrl+C on the terminal reaches the runner alone, which forwards it
            )

    def unfinished(self) -> Collection[str]:
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            del self._running[name]
            self._gpus.free(name)
        return self._running.keys()

    def stop(self) -> None:
        for name in self.unfinished():
            self._running[name].send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kills what is still running."""
        for name in self.unfinished():
            kill_group(self._running[name].pid)
            self._running[name].wait()


class GpuSlots:
    """Which job has which GPU; no GPU is assigned if `per_gpu` is not positive."""

    def __init__(self, num_gpus: int, per_gpu: int, visible: str | None):
        """per_gpu: jobs on one GPU. visible: CUDA_VISIBLE_DEVICES of this process. Raises ConfigError."""
        names = visible.split(",") if visible else [str(index) for index in range(num_gpus)]
        if per_gpu > 0 and len(names) < num_gpus:
            raise ConfigError(f"--num_gpus={num_gpus}: {GPUS}={visible} has only {len(names)}")
        self._per_gpu = per_gpu
        self._jobs: dict[str, set[str]] = {name: set() for name in names[:num_gpus]}

    def has_room(self) -> bool:
        return self._per_gpu <= 0 or any(len(jobs) < self._per_gpu for jobs in self._jobs.values())

    def take(self, job: str) -> Mapping[str, str]:
        """Gives the job the GPU with the fewest jobs; returns its environment variables."""
        if self._per_gpu <= 0:
            return {}
        gpu = min(self._jobs, key=lambda name: len(self._jobs[name]))
        self._jobs[gpu].add(job)
        return {GPUS: gpu}

    def free(self, job: str) -> None:
        for jobs in self._jobs.values():
            jobs.discard(job)
