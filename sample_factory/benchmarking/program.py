"""Runs another command of this package to its end, and watches what it needs."""

import contextlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from sample_factory.runtime import cpu

MAIN = "main"
OTHERS = "others"  # what the children have started, e.g. simulators
NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # what guests take is also part of another state
POLL_SECONDS = 0.1
USAGE_SECONDS = 5.0  # a look at all processes takes a few milliseconds of one core
# How long it may take to end after a first signal, which is a request to stop, and after a second one.
GRACE_SECONDS = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0))


class ProcessUsage(NamedTuple):
    """One process: MAIN, the name of a `Child`, or OTHERS."""

    name: str
    rss_mb: float


class Usage(NamedTuple):
    """A program and everything that it has started, at one moment."""

    wall_time: float  # seconds since 1970
    cpu_seconds: float  # that the processes which are alive have used so far
    machine_seconds: float  # that the cores which we may use have been busy so far, with whatever
    processes: tuple[ProcessUsage, ...]


class FinishedProgram(NamedTuple):
    """exit_code: None if it was ended because it took too long."""

    exit_code: int | None
    began: float  # wall time
    output: str  # stdout and stderr
    sign_seconds: float | None  # from the command to the first output that matches the sign
    usages: tuple[Usage, ...]


def run_program(
    command: Sequence[str], output_file: Path, limit_seconds: float, sign: re.Pattern[str]
) -> FinishedProgram:
    """Waits for the end of a command. Whatever ends the wait, an exception too, also ends the command."""
    began = time.time()
    with open(output_file, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A terminal's Ctrl+C reaches this process only, which then says once to the command that it is
            # to stop; a second signal would mean "at once".
            start_new_session=True,
        )
    try:
        sign_seconds, usages = _watch(process, output_file, limit_seconds, sign)
        exit_code = process.poll()
    finally:
        if process.poll() is None:
            end(process)
    return FinishedProgram(exit_code, began, _read(output_file), sign_seconds, tuple(usages))


def _watch(
    process: subprocess.Popen, output_file: Path, limit_seconds: float, sign: re.Pattern[str]
) -> tuple[float | None, list[Usage]]:
    started = time.monotonic()
    sign_seconds, usages, next_usage = None, [], USAGE_SECONDS
    while process.poll() is None and (seconds := time.monotonic() - started) < limit_seconds:
        if sign_seconds is None and sign.search(_read(output_file)):
            sign_seconds = seconds
        if seconds >= next_usage:
            next_usage += USAGE_SECONDS
            usages += usage_of(process.pid)
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return sign_seconds, usages


def _read(file: Path) -> str:
    return file.read_text(errors="replace")


def usage_of(pid: int) -> list[Usage]:
    """One Usage, or none if there is no such process."""
    try:
        found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    processes, cpu_seconds = [], 0.0
    for process in found:
        try:
            with process.oneshot():
                times, rss = process.cpu_times(), process.memory_info().rss
                name = MAIN if process.pid == pid else _name(process, pid)
        except psutil.Error:
            continue  # it has ended meanwhile
        cpu_seconds += times.user + times.system
        processes.append(ProcessUsage(name, rss / 2**20))
    return [Usage(time.time(), cpu_seconds, _machine_seconds(), tuple(processes))]


def _machine_seconds() -> float:
    cores = set(cpu.available_cores())
    busy = [
        seconds
        for core, times in enumerate(psutil.cpu_times(percpu=True))
        for state, seconds in times._asdict().items()
        if core in cores and state not in NOT_BUSY
    ]
    return sum(busy)


def _name(process: psutil.Process, main_pid: int) -> str:
    """`launch` puts the name of a Child last on its command line: python -c PROGRAM NAME."""
    words = process.cmdline() if process.ppid() == main_pid else []
    return words[3] if len(words) == 4 and words[1] == "-c" else OTHERS


def end(process: subprocess.Popen) -> None:
    """Asks it to stop, then presses, then kills it with all that it has started."""
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


@contextlib.contextmanager
def signals_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP, unless ignored, end what runs as Ctrl+C does: as an exception."""

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
