"""Runs jobs as processes of this machine, optionally spread over its GPUs."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Collection
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
        self._per_gpu: int = arguments.experiments_per_gpu  # not positive: each run sees all GPUs
        visible = os.environ.get(GPUS)
        names = visible.split(",") if visible else list(map(str, range(arguments.num_gpus)))
        if self._per_gpu > 0 and len(names) < arguments.num_gpus:
            raise ConfigError(f"--num_gpus={arguments.num_gpus}: {GPUS}={visible} has only {len(names)}")
        self._gpus = names[: arguments.num_gpus]
        self._gpu_of: dict[str, str] = {}  # the names of running jobs -> their GPUs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

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
        with open(job.log, "ab") as log:
            self._running[job.name] = subprocess.Popen(
                [sys.executable, "-m", "sample_factory.runner.run_job", str(job.order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # Ctrl+C on the terminal reaches the runner alone, which forwards it
            )

    def unfinished(self) -> Collection[str]:
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            del self._running[name]
            self._gpu_of.pop(name, None)
        return self._running.keys()

    def stop(self) -> None:
        for name in self.unfinished():
            self._running[name].send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kills what is still running."""
        for name in self.unfinished():
            kill_group(self._running[name].pid)
            self._running[name].wait()
