"""Runs Python programs in processes that are forked from one that has imported torch.

A program that a test starts with an interpreter of its own spends most of its time on that import, and its
template process on the same import. Use this where the start is not what the test is about.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from sample_factory.runtime import start_template, template

MODULES = [
    "sample_factory.training.run",
    "sample_factory.evaluation.measurement",
    "sample_factory.learning.learner_worker",
    "sample_factory.sampling.inline_sampler",
]
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(MODULES)


class Program:
    """A program that runs, used like a Popen with stdout and stderr in one pipe of text."""

    def __init__(self, words: Sequence[str]):
        """words: what follows `python`: a file or "-m" and a module, then arguments."""
        reader, writer = _processes.Pipe(duplex=False)
        self._process = _start(_run_one, words, dict(os.environ), Path.cwd(), writer)
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()))
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, f"still running after {timeout} s"
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        shown = []
        reader = threading.Thread(target=lambda: shown.append(self.stdout.read()), daemon=True)
        reader.start()
        self.wait(timeout)
        reader.join(timeout)
        assert not reader.is_alive(), "a process that it has left holds its output"
        return "".join(shown), None

    def kill(self) -> None:
        self._process.kill()


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
    process = _start(_run_each, command_lines, files, dict(os.environ), cwd or Path.cwd(), writer)
    writer.close()
    process.join(timeout)
    has_ended = process.exitcode is not None
    process.kill()
    process.join()
    shown = [file.read_text(errors="replace") if file.exists() else "" for file in files]
    assert has_ended and process.exitcode == 0, f"exit code {process.exitcode}:\n" + "\n".join(shown)
    return list(zip(reader.recv(), shown, strict=True))


def _start(target: Callable, *arguments):
    process = _processes.Process(target=target, args=arguments)
    process.start()
    return process


def _run_one(words, environment, cwd, output) -> None:
    """In the process of a Program."""
    _enter(environment, cwd)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    ready = _fork_template([])
    if ready:
        code = _run(words, ready)
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.exit(code)


def _run_each(command_lines, files, environment, cwd, writer) -> None:
    """In the process of several programs."""
    _enter(environment, cwd)
    templates = []
    for file in files:  # before the programs change this process
        _write_to(file)
        templates.append(_fork_template(templates))
        if templates[-1] is None:
            return
    codes = []
    for words, file, ready in zip(command_lines, files, templates, strict=True):
        _write_to(file)
        codes.append(_run(list(words), ready))
    writer.send(codes)


def _enter(environment, cwd) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.stdout.reconfigure(line_buffering=True)  # stdout and stderr are in the order of a terminal


def _write_to(file: Path) -> None:
    with open(file, "a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)


class _ForkedTemplate(template.Template):
    """A template process that is a copy of this process."""

    def __init__(self, connection: socket.socket, pid: int):
        self._socket = connection
        self._process = _Forked(pid)
        self._is_ready = False
        self._is_useless = False
        self._lock = threading.RLock()


class _Forked:
    """A child of this process with what `Template` uses of a Popen."""

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode = None

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _fork_template(others: Sequence[_ForkedTemplate]) -> _ForkedTemplate | None:
    """Forks a template process and returns it.

    Like `os.fork`, this returns more than once: None in the template process when it ends, and None in each
    child of the template when its work is done. The caller then has to return at once.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return _ForkedTemplate(ours, pid)
    for end in [ours, *(other._socket for other in others)]:
        end.close()
    os.setpgid(0, 0)
    try:
        start_template.main(theirs.detach(), [])
    finally:  # as at the end of an interpreter
        threading._shutdown()
        atexit._run_exitfuncs()
    return None


def _end_with_the_tests() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def _run(words: list[str], ready: _ForkedTemplate) -> int:
    """Runs a program in this process and returns its exit code. ready: the first template that it uses."""
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    own, unused = template.Template, [ready]
    template.Template = lambda *options: unused.pop() if unused else own(*options)
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
    finally:
        template.Template = own
        ready.close()
    return 0
