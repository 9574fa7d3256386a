"""Starts the real commands, reads their output, and looks at what they leave."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.mainloop.run_result import DONE
from sample_factory.training.run import train_config
from tests.forked import Program, run_programs
from tests.waiting import eventually

PR_SET_CHILD_SUBREAPER = 36  # of sys/prctl.h
# A run that takes longer hangs; on a busy machine it can take ten times as long as on an idle one.
LIMIT_SECONDS = 150.0
ENGINE = "vizdoom"  # the process name of a Doom engine

SMALL = [
    "--num_workers=2",
    "--inline_samplers=0",  # the same processes on any number of cores
    "--num_envs_per_worker=4",
    "--rollout=16",
    "--batch_size=128",
    "--ppo_epochs=1",
    "--device=cpu",
    "--precision=fp32",
    "--encoder_mlp_layers",
    "16",
    "--hidden_size=16",
    "--experiment_summaries_interval=1",
    "--status_interval=0.5",
]
FOREVER = "--train_for_env_steps=1000000000"


def command(module: str, train_dir: Path, *flags: str) -> list[str]:
    """Returns a command line. module: a command of sample_factory, or a script of this folder."""
    script = Path(__file__).with_name(module)
    program = [str(script)] if script.suffix == ".py" else ["-m", "sample_factory", module]
    return [sys.executable, *program, f"--train_dir={train_dir}", *flags]


def environment() -> dict[str, str]:
    """Returns variables with which a script finds the package even where it is not installed."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def run(module: str, train_dir: Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a command to its end; `stdout` of the result holds stderr, too, as in a terminal."""
    _, *words = command(module, train_dir, *flags)
    with tempfile.TemporaryDirectory() as folder:
        [(code, shown)] = run_programs([words], Path(folder), LIMIT_SECONDS)
    return subprocess.CompletedProcess(words, code, shown)


def train(train_dir: Path, *flags: str) -> dict[str, Any]:
    """Trains in this process, to the end. Returns what the newest checkpoint of policy 0 holds."""
    config = parse_config([f"--train_dir={train_dir}", *flags], resolve_family)
    assert train_config(config).status == DONE
    return newest_state(config.experiment_dir)


started: list[Program] = []


def start(module: str, train_dir: Path, *flags: str) -> Program:
    """Starts a command; it is killed after the test if it still runs."""
    _, *words = command(module, train_dir, *flags)
    process = Program(words)
    started.append(process)
    return process


def kill_started() -> None:
    """Kills all that tests have started and not ended."""
    while started:
        process = started.pop()
        process.kill()
        process.wait()
        process.stdout.close()


# The beginning of a status: "180k / 450k   40 %", or "180k   1,224 FPS" without a limit.
STATUS = re.compile(r"\[main\] INFO +([\d.]+)([kM]?)(?: / \S+)?  ")


def wait_for_line(process: Program, text: str) -> str:
    """Reads the output up to a line with `text` and returns it; fails if the output ends before."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in:\n{''.join(lines)}")


def wait_for_frames(process: Program, beyond: int) -> int:
    """Reads the output up to a status with more than `beyond` env frames; returns their number, in which only
    three digits are exact."""
    while True:
        status = STATUS.search(wait_for_line(process, "[main] INFO "))
        if status is None:
            continue
        frames = round(float(status[1]) * {"": 1, "k": 1e3, "M": 1e6}[status[2]])
        if frames > beyond:
            return frames


def wait_for_progress(process: Program) -> None:
    """Waits until env frames are added to those of the next status."""
    wait_for_frames(process, wait_for_frames(process, 0))


def interrupt(process: Program, number: int = signal.SIGINT) -> None:
    os.kill(process.pid, number)


def stop(process: Program, number: int = signal.SIGINT) -> str:
    """Stops a run by a signal; fails unless it ends well. Returns the rest of its output."""
    interrupt(process, number)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, output
    return output


def descendants(process: Program) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def child(family: list[psutil.Process], name: str) -> psutil.Process:
    """Returns the process of a worker. LookupError if there is none."""
    for process in family:
        if name_of(process) == name.replace("_worker", ""):
            return process
    raise LookupError(f"no {name} among {family}")


def engines(process: psutil.Process) -> list[psutil.Process]:
    """Returns the Doom engines of a worker."""
    return [child for child in process.children(recursive=True) if name_of(child) == ENGINE]


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


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Makes the children of a killed run children of the tests.

    Otherwise the kernel would wake the stopped ones: their new parent would be in another session.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def assert_all_gone(processes: list[psutil.Process], timeout: float = 60) -> None:
    _, alive = psutil.wait_procs(processes, timeout=timeout)
    assert not alive, f"still running: {alive}"


def engine_ids(process: Program) -> set[str]:
    """Returns the instance ids of the Doom engines of a run, with which the names of their files end."""
    ids = set()
    for engine in engines(psutil.Process(process.pid)):
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):
            words = engine.cmdline()
            ids.add(words[words.index("+viz_instance_id") + 1])
    return ids


def assert_nothing_left(family: list[psutil.Process], temporary: Path, ids: set[str]) -> None:
    """Fails if processes, temporary files or shared memory of a run's engines are left.

    temporary: the folder of the run's temporary files. ids: the `engine_ids` that the run has had.
    """
    assert_all_gone(family)

    def left() -> list[Path]:
        of_engines = (path for path in Path("/dev/shm").glob("ViZDoom*") if path.name[-10:] in ids)
        return [*temporary.iterdir(), *of_engines]

    # What removes the files of killed engines outlives them for a moment.
    assert ids and eventually(lambda: not left()), left()


def checkpoints(experiment: Path, policy: int = 0) -> list[Path]:
    """Returns the checkpoints of a policy, oldest first."""
    return sorted((experiment / f"checkpoint_p{policy}").glob("checkpoint_*.pth"))


def newest_state(experiment: Path, policy: int = 0) -> dict[str, Any]:
    """Returns what the newest checkpoint holds."""
    import torch  # not above: processes import the test modules whose envs they make

    return torch.load(checkpoints(experiment, policy)[-1], weights_only=True)


def scalars(experiment: Path, policy: int = 0) -> dict[str, list[tuple[int, float]]]:
    """Returns the numbers written for TensorBoard: (x, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(experiment / ".summary" / str(policy)))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
