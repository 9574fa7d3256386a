"""A stand-in for Slurm on one machine: sbatch, squeue and scancel that really run the jobs.

`install` writes the three programs into a folder for PATH. A job waits until one of NUM_SLOTS is free,
and until the one before it has begun.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

NUM_SLOTS = 2
FIRST_ID = 1000
PROGRAMS = ("sbatch", "squeue", "scancel")
WITH_VALUE = ("-p", "-c", "--output")
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {here!r})
import stand_in_slurm
sys.exit(stand_in_slurm.{name}({state!r}, sys.argv[1:]))
"""


def install(folder: Path) -> None:
    """Writes the programs into `folder`, and their state into `folder`/jobs."""
    (folder / "jobs").mkdir(parents=True)
    here = str(Path(__file__).parent)
    for name in PROGRAMS:
        text = PROGRAM.format(python=sys.executable, here=here, name=name, state=str(folder / "jobs"))
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def sbatch(state: str, argv: list[str]) -> int:
    """Starts a job in the background and prints its id."""
    words = iter(argv)
    values = {word: next(words) for word in words if word in WITH_VALUE}
    script = Path(argv[-1])
    if (Path(state) / "refuse").exists():
        print("sbatch: error: QOSMaxSubmitJobPerUserLimit", file=sys.stderr)
        return 1
    job_id = FIRST_ID + len(list(Path(state).glob("*.pid")))
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import stand_in_slurm"
    with open(values["--output"].replace("%j", str(job_id)), "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{program}; stand_in_slurm.run({state!r}, {job_id}, {str(script)!r})"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (Path(state) / f"{job_id}.pid").write_text(str(process.pid))
    print(job_id)
    return 0


def run(state: str, job_id: int, script: str) -> None:
    """In the job: waits for its turn and a slot, then runs the script."""
    while not _has_begun(Path(state), job_id - 1):
        time.sleep(0.1)
    descriptors = [os.open(Path(state) / f"slot_{slot}", os.O_CREAT | os.O_RDWR) for slot in range(NUM_SLOTS)]
    while not any(map(_is_locked, descriptors)):
        time.sleep(0.1)
    (Path(state) / f"{job_id}.began").touch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process is not of the job; its shell is
    subprocess.run(["bash", script], preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def _has_begun(state: Path, job_id: int) -> bool:
    """Returns whether a job has taken a slot or has ended; True for the id before the first."""
    if job_id < FIRST_ID or (state / f"{job_id}.began").exists():
        return True
    return not _is_alive(int((state / f"{job_id}.pid").read_text()))


def _is_locked(descriptor: int) -> bool:
    """Returns whether this process now holds the lock; it is released when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def squeue(state: str, argv: list[str]) -> int:
    """Prints the ids of the jobs that wait or run."""
    for path in sorted(Path(state).glob("*.pid")):
        if _is_alive(int(path.read_text())):
            print(path.stem)
    return 0


def scancel(state: str, argv: list[str]) -> int:
    """Sends SIGTERM to all processes of the jobs. In reverse, so that no waiting job takes a freed place."""
    for job_id in reversed(argv):
        pid = int((Path(state) / f"{job_id}.pid").read_text())
        if _is_alive(pid):
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                    process.terminate()
    return 0
