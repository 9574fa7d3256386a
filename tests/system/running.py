"""Runs of the real commands, and what they leave."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36  # of sys/prctl.h

SMALL = [
    "--num_workers=2",
    "--num_envs_per_worker=4",
    "--rollout=16",
    "--batch_size=128",
    "--device=cpu",
    "--precision=fp32",
    "--encoder_mlp_layers",
    "16",
    "--hidden_size=16",
    "--experiment_summaries_interval=1",
    "--status_interval=0.5",
]


def command(module: str, train_dir: Path, *flags: str) -> list[str]:
    """module: of sample_factory, or a script of this folder."""
    script = Path(__file__).with_name(module)
    program = [str(script)] if script.suffix == ".py" else ["-m", f"sample_factory.{module}"]
    return [sys.executable, *program, f"--train_dir={train_dir}", *flags]


def environment() -> dict[str, str]:
    """A script finds the package even where it is not installed."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def run(module: str, train_dir: Path, *flags: str, timeout: float = 90) -> subprocess.CompletedProcess:
    """Runs to the end; the output is that of a user's terminal."""
    return subprocess.run(
        command(module, train_dir, *flags),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


started: list[subprocess.Popen] = []


def start(module: str, train_dir: Path, *flags: str) -> subprocess.Popen:
    process = subprocess.Popen(
        command(module, train_dir, *flags),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started.append(process)
    return process


def end_what_is_left() -> None:
    """After a test that failed half way: nothing that it started goes on."""
    while started:
        process = started.pop()
        process.kill()
        process.communicate()


def wait_for_line(process: subprocess.Popen, text: str) -> str:
    """Reads the output up to a line with `text`; fails with all of it if it never comes."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in:\n{''.join(lines)}")


def wait_for_frames(process: subprocess.Popen, beyond: int) -> int:
    """Reads the output up to a status with more env frames than that."""
    while True:
        line = wait_for_line(process, "env frames ")
        frames = int(line.split("env frames ")[1].split(" ")[0].replace(",", ""))
        if frames > beyond:
            return frames


def child(family: list[psutil.Process], name: str) -> psutil.Process:
    """The process of a worker; its name stands on its command line. Raises LookupError if there is none."""
    for process in family:
        try:
            if process.cmdline()[-1:] == [name]:
                return process
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    raise LookupError(f"no {name} among {family}")


def engines(process: psutil.Process) -> list[psutil.Process]:
    """The Doom engines of a worker."""
    return [child for child in process.children(recursive=True) if name_of(child) == "vizdoom"]


def name_of(process: psutil.Process) -> str:
    """Returns the name of a process, or "" if it has ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def kill(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    os.kill(process.pid, number)


def kill_idle_engine(worker: psutil.Process, number: int) -> psutil.Process:
    """Kills a worker's engine between two calls, when it holds no lock that the worker would wait for."""
    victim = engines(worker)[number]
    worker.suspend()
    time.sleep(0.3)  # a step takes milliseconds
    kill(victim)
    worker.resume()
    return victim


def descendants(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def interrupt(process: subprocess.Popen, number: int = signal.SIGINT) -> None:
    os.kill(process.pid, number)


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """What a killed run leaves behind becomes the tests' own; the kernel wakes stopped processes that get a
    parent in another session.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def assert_all_gone(processes: list[psutil.Process], timeout: float = 15) -> None:
    _, alive = psutil.wait_procs(processes, timeout=timeout)
    assert not alive, f"still running: {alive}"


def scalars(experiment: Path, policy: int = 0) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard's numbers: (x, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(experiment / ".summary" / str(policy)))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
