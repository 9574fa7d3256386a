"""Runs Python programs in processes that are forked from one that has imported torch.

A program that a test starts with an interpreter of its own spends most of its time on that import. Use this
for programs that end by themselves, where their start is not what the test is about.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

MODULES = [
    "sample_factory.training.run",
    "sample_factory.evaluation.measure",
    "sample_factory.learning.learner_worker",
    "sample_factory.sampling.inline_sampler",
]
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(MODULES)


def run_programs(
    command_lines: Sequence[Sequence[str]], folder: Path, timeout: float, cwd: Path | None = None
) -> list[tuple[int, str]]:
    """Runs programs one after another in one process.

    command_lines: what follows `python`: a file or "-m" and a module, then arguments. folder: for files with
    the output. Returns the exit code of each, and what it has written to stdout and stderr. Fails if they do
    not end within `timeout` seconds.
    """
    files = [folder / f"output_{number}.txt" for number in range(len(command_lines))]
    reader, writer = _processes.Pipe(duplex=False)
    arguments = (command_lines, files, dict(os.environ), cwd or Path.cwd(), writer)
    process = _processes.Process(target=_run_each, args=arguments)
    process.start()
    writer.close()
    process.join(timeout)
    has_ended = process.exitcode is not None
    process.kill()
    process.join()
    shown = [file.read_text(errors="replace") if file.exists() else "" for file in files]
    assert has_ended and process.exitcode == 0, f"exit code {process.exitcode}:\n" + "\n".join(shown)
    return list(zip(reader.recv(), shown, strict=True))


def _run_each(command_lines, files, environment, cwd, writer) -> None:
    """In the process."""
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.stdout.reconfigure(line_buffering=True)  # stdout and stderr are in the order of a terminal
    codes = []
    for words, file in zip(command_lines, files, strict=True):
        with open(file, "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        codes.append(_run(list(words)))
    writer.send(codes)


def _end_with_the_tests() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def _run(words: list[str]) -> int:
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    try:
        (runpy.run_module if is_module else runpy.run_path)(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
