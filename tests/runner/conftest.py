"""Grids of short programs, run by the command as a user starts it."""

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.runner import stand_in_slurm

ROOT = Path(__file__).parents[2]
# Ends with the exit code in the file `outcome_<number>`, 0 without one; waits while there is a file `wait`.
PROGRAM = """
import os, pathlib, sys, time
number = next(word for word in sys.argv if word.startswith("--number=")).partition("=")[2]
with open(f"starts_{number}", "a") as file:
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
while pathlib.Path("wait").exists():
    time.sleep(0.02)
outcome = pathlib.Path(f"outcome_{number}")
print("the last words of", number)
sys.exit(int(outcome.read_text()) if outcome.exists() else 0)
"""
DESCRIPTION = """
from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription

grid = ParamGrid([("number", {numbers})])
RUN_DESCRIPTION = RunDescription("grid", [Experiment("a", "python program.py", grid.generate_params())])
"""


class ProgramGrid:
    """A grid `my_grid.py` in a folder, in which the command runs."""

    command = "run"

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
        (folder / "program.py").write_text(PROGRAM)
        self.describe([0, 1, 2])

    def describe(self, numbers):
        (self.folder / "my_grid.py").write_text(textwrap.dedent(DESCRIPTION.format(numbers=numbers)))

    def argv(self, *flags):
        flags = ["--run=my_grid", "--pause_between=0", *flags]
        return [sys.executable, "-m", "sample_factory", self.command, *flags]

    def run(self, *flags):
        """Runs the command to its end; stdout has all that it prints."""
        return subprocess.run(
            self.argv(*flags),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def start(self, *flags):
        return subprocess.Popen(
            self.argv(*flags),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def files(self):
        return self.folder / "train_dir" / "grid" / "runner"

    def starts(self, number):
        """Returns what CUDA_VISIBLE_DEVICES was in each start of a run."""
        path = self.folder / f"starts_{number}"
        return path.read_text().split() if path.exists() else []

    def fail(self, number, exit_code=1):
        (self.folder / f"outcome_{number}").write_text(str(exit_code))

    def states(self):
        """Returns the state of each run, by its number."""
        paths = sorted(self.files.glob("*.state.json"))
        return {
            path.name.split("_")[-1].partition(".")[0]: json.loads(path.read_text())["state"]
            for path in paths
        }

    def results(self):
        """Returns the rows of results.csv."""
        with open(self.folder / "train_dir" / "grid" / "results.csv") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def grid(tmp_path):
    return ProgramGrid(tmp_path)


@pytest.fixture
def cluster(grid, tmp_path):
    """Installs a stand-in for Slurm; returns the folder of its jobs."""
    stand_in_slurm.install(tmp_path / "bin")
    grid.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    jobs = tmp_path / "bin" / "jobs"
    yield jobs
    (jobs / "refuse").touch()  # jobs that would queue themselves again
    (grid.folder / "wait").unlink(missing_ok=True)
    for file in jobs.glob("*.pid"):
        kill_job(int(file.read_text()))


def kill_job(pid):
    """Kills the processes of a job of the stand-in for Slurm, if it has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        job = psutil.Process(pid)
        if "stand_in_slurm" in " ".join(job.cmdline()):  # the pid may have been used again
            for process in [job, *job.children(recursive=True)]:
                process.kill()


@pytest.fixture
def places(grid, tmp_path):
    """Returns the home folder and the folder for temporary files, both empty."""
    temporary = Path(tempfile.mkdtemp(prefix="t"))  # Ray's sockets need a short path
    home = tmp_path / "home"
    home.mkdir()
    grid.env.update(HOME=str(home), TMPDIR=str(temporary))
    yield home, temporary
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(temporary)
