"""Runs another command of this package to its end, and watches its use of CPU and memory."""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from sample_factory.runtime import cpu

NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # the time of guests is also part of another state
POLL_SECONDS = 0.1
USAGE_SECONDS = 5.0  # a look at all processes takes a few milliseconds of one core
# Seconds that a program may take to end after SIGINT, a request to stop, and after SIGTERM. The first is more
# than `dummy_sampler` gives its workers before it kills them.
GRACE_SECONDS = ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0))

KILL_SECONDS = 10.0  # a killed process takes a moment to disappear


class ProcessUsage(NamedTuple):
    """Resident memory of one process."""

    pid: int
    rss_mb: float


class Usage(NamedTuple):
    """A program and all processes that it has started, at one moment."""

    wall_time: float  # seconds since 1970
    cpu_seconds: float  # that the processes which are alive have used so far
    machine_seconds: float  # that the available cores have been busy so far, with any program
    processes: tuple[ProcessUsage, ...]


class FinishedProgram(NamedTuple):
    """exit_code: None if it was ended because it took too long."""

    exit_code: int | None
    began: float  # wall time
    output: str  # stdout and stderr
    usages: tuple[Usage, ...]


def run_program(command: Sequence[str], output_file: Path, limit_seconds: float) -> FinishedProgram:
    """Runs a command to its end. An exception, such as KeyboardInterrupt, also ends the command."""
    began = time.time()
    with open(output_file, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A terminal's Ctrl+C must reach this process only, which then sends one SIGINT to the command: a
            # second one would mean "stop at once".
            start_new_session=True,
        )
    try:
        usages = _watch(process, limit_seconds)
        exit_code = process.poll()
    finally:
        if process.poll() is None:
            end(process)
    return FinishedProgram(exit_code, began, output_file.read_text(errors="replace"), tuple(usages))


def _watch(process: subprocess.Popen[bytes], limit_seconds: float) -> list[Usage]:
    started = time.monotonic()
    usages: list[Usage] = []
    next_usage = USAGE_SECONDS
    while process.poll() is None and (seconds := time.monotonic() - started) < limit_seconds:
        if seconds >= next_usage:
            next_usage += USAGE_SECONDS
            usages += usage_of(process.pid)
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return usages


def usage_of(pid: int) -> list[Usage]:
    """Returns one Usage, or none if there is no such process."""
    try:
        found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    processes = []
    cpu_seconds = 0.0
    for process in found:
        try:
            with process.oneshot():
                times = process.cpu_times()
                rss = process.memory_info().rss
        except psutil.Error:
            continue  # it has ended meanwhile
        cpu_seconds += times.user + times.system
        processes.append(ProcessUsage(process.pid, rss / 2**20))
    return [Usage(time.time(), cpu_seconds, _machine_seconds(), tuple(processes))]


def _machine_seconds() -> float:
    cores = set(cpu.available_cores())
    busy = [
        seconds
        for core, times in enumerate(psutil.cpu_times(percpu=True))
        for state, seconds in times._asdict().items()
        if core in cores and state not in NOT_BUSY
    ]
    return float(sum(busy))


def end(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGINT, then SIGTERM, then kills the process and all that it has started."""
    try:
        descendants = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        descendants = []
    try:
        for number, seconds in GRACE_SECONDS:
            process.send_signal(number)
            try:
                process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                continue
    finally:  # also when a second Ctrl+C ends the wait
        process.kill()
        process.wait()
        for descendant in descendants:
            try:
                descendant.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(descendants, KILL_SECONDS)


@contextlib.contextmanager
def signals_like_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP, unless ignored, raise KeyboardInterrupt within the block."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        former = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
