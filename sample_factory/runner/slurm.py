"""Runs jobs on a Slurm cluster: one sbatch job each."""

import getpass
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from string import Template

from sample_factory.config.experiment_folder import write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.runner.backend import CannotStart, RunnerFlags
from sample_factory.runner.run_job import Job
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.log import log
from sample_factory.runtime.safe_files import open_file

# `trap`: Slurm kills what is left of a job when its shell has ended, and the run is still saving then.
# `timeout` sends SIGTERM, so that the run saves; its exit code is then 124. 0: no limit.
DEFAULT_TEMPLATE = """#!/bin/bash
trap : TERM
cd {cwd}
timeout $TIMEOUT $CMD
code=$$?
if [ $$code -eq 124 ]; then
    $SUBMIT > $ID_FILE
fi
exit $$code
"""
POLL_SECONDS = 2.0  # between two calls of squeue
MAX_ID = 100  # characters
GONE_SECONDS = 8.0  # a job that squeue does not list may have written its state on another machine
CALL_SECONDS = 60.0  # limit for a call of squeue or sbatch


class SlurmBackend:
    """Submits all jobs to Slurm at once; Slurm's queue decides when each job starts."""

    outlives_runner = True

    def __init__(self, flags: RunnerFlags, files: Path):
        """Reads the template of the batch script. Raises ConfigError if the template cannot be read or Slurm
        is not installed.
        files: not used, since each Job knows its folder."""
        self._flags = flags
        workdir = flags.slurm_workdir
        self._workdir = Path(workdir).expanduser().absolute() if workdir else None
        path = flags.slurm_sbatch_template
        try:
            self._template = None if path is None else Path(path).expanduser().read_text()
        except OSError as error:
            raise ConfigError(f"--slurm_sbatch_template={path}: {error.strerror}") from None
        missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
        if missing and not flags.slurm_print_only:
            raise ConfigError(
                f"--runner=slurm: there is no {missing[0]} on this machine; start it on a login node of the "
                "cluster, or see the scripts with --slurm_print_only=True"
            )
        self._num_cpus = int(flags.slurm_cpus_per_gpu * max(1, flags.slurm_gpus_per_job))
        self._jobs: dict[str, Job] = {}
        self._seen: dict[str, float] = {}  # name -> when it was submitted, or listed by squeue
        self._listed: Collection[str] = ()  # ids, as squeue has listed them last
        self._asked_at = -POLL_SECONDS

    def adopt(self, job: Job) -> bool:
        if not self._file(job, "id").exists() or self._id_of(job) not in self._ask():
            return False
        try:
            is_same = Job.read(job.order).command == list(job.command)
        except ConfigError:  # missing, or written by another version
            is_same = False
        if not is_same:
            raise ConfigError(
                f"{job.name} is in Slurm's queue with another command; wait for it, or cancel it: "
                f"scancel {self._id_of(job)}"
            )
        self._follow(job)
        return True

    def has_room(self) -> bool:
        return True

    def start(self, job: Job) -> None:
        self._file(job, "sh").parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file(job, "sh"), self.script_text(job))
        try:
            job_id = _call(self.sbatch(job))
        except subprocess.CalledProcessError as error:
            raise CannotStart(f"sbatch: {' '.join(error.stderr.split())}") from None
        except subprocess.TimeoutExpired:
            raise CannotStart(f"sbatch has not answered within {CALL_SECONDS:g} s") from None
        write_atomically(self._file(job, "id"), job_id)
        self._follow(job)
        # The script may be run at any moment, also after a job has queued itself again with another id.
        ids = shlex.join(str(self._file(job, "id")) for job in self._jobs.values())
        cancel = f"scancel $(cat {ids} | cut -d ';' -f 1)\n"
        write_atomically(self._file(job, "id").with_name("scancel.sh"), cancel)

    def unfinished(self) -> Collection[str]:
        try:
            listed = self._ask()
        except CommandFailed as error:  # e.g. Slurm's controller is busy: the jobs run on
            log.warning("%s", error)
            listed = [self._id_of(job) for job in self._jobs.values()]
        for name, job in self._jobs.items():
            if self._id_of(job) in listed:
                self._seen[name] = self._asked_at
        now = time.monotonic()
        return [name for name, seen in self._seen.items() if now - seen < GONE_SECONDS]

    def _ask(self) -> Collection[str]:
        """Returns the ids of this user's waiting and running jobs, as squeue lists them.
        Calls squeue at most every POLL_SECONDS. Raises CommandFailed if the call fails."""
        now = time.monotonic()
        if now - self._asked_at >= POLL_SECONDS:
            self._asked_at = now
            command = ["squeue", "--noheader", "--user", getpass.getuser(), "--format", "%i"]
            try:
                self._listed = set(_call(command).split())
            except subprocess.SubprocessError as error:
                raise CommandFailed(f"squeue does not work: {error}") from None
        return self._listed

    def stop(self, names: Collection[str]) -> None:
        try:
            _call(["scancel", *filter(None, (self._id_of(self._jobs[name]) for name in names))])
        except subprocess.SubprocessError as error:  # e.g. a job has just ended
            log.warning("scancel: %s", error)

    def close(self) -> None:
        """Does nothing: the jobs go on without this process, and still need their batch scripts."""

    def sbatch(self, job: Job) -> Sequence[str]:
        """Returns the sbatch command that submits a job."""
        a = self._flags
        partition = ["-p", a.slurm_partition] if a.slurm_partition else []
        gpus = [f"--gres=gpu:{a.slurm_gpus_per_job}"] if a.slurm_gpus_per_job else []
        script = str(self._file(job, "sh"))
        words = [*partition, *gpus, "-c", str(self._num_cpus), "--parsable"]
        return ["sbatch", *words, "--output", f"{script}-slurm-%j.out", script]

    def script_text(self, job: Job) -> str:
        """Returns the text of a job's batch script: the template with its variables replaced; a template
        without $CMD is followed by the command."""
        python = sys.executable if self._template is None else "python"  # a template may activate another one
        command = shlex.join([python, "-m", "sample_factory.runner.run_job", str(job.order)])
        cwd = shlex.quote(str(Path.cwd())).replace("$", "$$")
        template = DEFAULT_TEMPLATE.format(cwd=cwd) if self._template is None else self._template
        if "$CMD" not in template and "${CMD}" not in template:  # as in version 1
            return f"{template.rstrip()}\n{command}\n"
        a = self._flags
        return Template(template).safe_substitute(
            CMD=command,
            FILENAME=shlex.quote(str(self._file(job, "sh"))),
            PARTITION=f"-p {a.slurm_partition} " if a.slurm_partition else "",
            GPU=a.slurm_gpus_per_job,
            CPU=self._num_cpus,
            TIMEOUT=a.slurm_timeout,
            SUBMIT=shlex.join(self.sbatch(job)),
            ID_FILE=shlex.quote(str(self._file(job, "id"))),
        )

    def _follow(self, job: Job) -> None:
        self._jobs[job.name] = job
        self._seen[job.name] = time.monotonic()

    def _file(self, job: Job, ending: str) -> Path:
        """Returns the path of a job's batch script (ending "sh") or of the file with its Slurm id ("id")."""
        # The folder's name has the --experiment_suffix.
        return (self._workdir or job.files) / f"sbatch_{job.folder.parent.name}_{job.name}.{ending}"

    def _id_of(self, job: Job) -> str:
        path = self._file(job, "id")
        with open_file(path) as file:
            job_id = file.read(MAX_ID).strip().partition(";")[0]  # "id" or "id;cluster"
        # Empty while a job submits itself again. It becomes an argument of scancel.
        if job_id and not (job_id.isascii() and job_id.isdecimal()):
            raise ConfigError(f"{path} does not hold the id of a job; delete it")
        return str(job_id)


def _call(command: Sequence[str]) -> str:
    """Runs a command of Slurm and returns its output. Raises SubprocessError if the command fails or takes
    longer than CALL_SECONDS."""
    return subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS, check=True).stdout
