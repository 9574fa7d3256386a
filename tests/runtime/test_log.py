"""Tests of the log of a run."""

import io
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
import warnings

import pytest

from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.log import RED, current_settings, log, restored_logging, setup_logging


@pytest.fixture(autouse=True)
def restore_logging():
    yield
    setup_logging("main")


@pytest.fixture
def open_terminal(monkeypatch):
    """Returns a function that makes stderr a terminal of 80 columns and returns what it shows."""

    def open_terminal(term: str = "dumb") -> io.StringIO:
        stream = io.StringIO()
        stream.isatty = lambda: True
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", term)
        return stream

    return open_terminal


class Warns:
    """In the child: warns in two ways, and once more as another process would."""

    def __init__(self, context):
        self._context = context

    def run(self) -> None:
        log.warning("%s: the folder is not writable", self._context.name)
        log.warning("%s: the folder is not writable", "worker_77")
        warnings.warn("\x1b[33mthis env is old\x1b[0m", UserWarning, stacklevel=1)


class Chatters:
    """In the child: writes lines without a pause."""

    def __init__(self, context):
        self.name = context.name

    def run(self) -> None:
        for number in range(500):
            log.info("%s says %d %s", self.name, number, "." * 200)


def test_processes_append_whole_lines_to_one_file(tmp_path):
    path = tmp_path / "new" / "sf_log.txt"
    setup_logging("main", str(path))
    log.info("hello\nworld")
    children = [Child(f"worker_{i}", Chatters, options=ChildOptions(one_shot=True)) for i in range(2)]
    for child in children:
        child.start()
    for child in children:
        assert child.join(20) and child.failure is None
    lines = path.read_text().splitlines()
    assert lines[0].endswith("[main] INFO hello") and lines[1] == "world"
    for child in children:
        own = [line.split("] ", 1)[1] for line in lines if f"[{child.name}]" in line]
        assert own == [f"INFO {child.name} says {i} {'.' * 200}" for i in range(500)]
    assert len(lines) == 1002


def test_setting_up_again_replaces_the_handlers(tmp_path, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    setup_logging("first", str(tmp_path / "a.txt"))
    setup_logging("second", level="WARNING")
    log.info("too quiet")
    log.warning("loud")
    assert stream.getvalue().count("\n") == 1 and "[second] WARNING loud" in stream.getvalue()
    assert (tmp_path / "a.txt").read_text() == ""
    assert current_settings() == {"log_file": None, "log_level": logging.WARNING, "in_notebook": False}


def test_children_of_a_program_without_setup_log_from_info_on(monkeypatch):
    monkeypatch.setattr(log, "level", logging.NOTSET)
    assert current_settings()["log_level"] == logging.INFO


def test_after_a_block_the_process_logs_as_before_it_and_handlers_of_others_stay(tmp_path, monkeypatch):
    of_user = logging.NullHandler()
    monkeypatch.setattr(log, "handlers", [of_user])
    before = (log.level, log.propagate, current_settings())
    with restored_logging():
        setup_logging("main", str(tmp_path / "log.txt"), logging.DEBUG)
        assert of_user in log.handlers and len(log.handlers) == 3
    assert log.handlers == [of_user]
    assert (log.level, log.propagate, current_settings()) == before


@pytest.mark.parametrize(
    ("is_terminal", "environment"),
    [(True, {}), (False, {}), (True, {"NO_COLOR": "1"}), (True, {"TERM": "dumb"})],
)
def test_only_a_terminal_gets_colours_unless_they_are_not_wanted(
    is_terminal, environment, open_terminal, tmp_path, monkeypatch
):
    stream = open_terminal("xterm")
    stream.isatty = lambda: is_terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    setup_logging("main", str(tmp_path / "log.txt"))
    log.error("red")
    assert (RED in stream.getvalue()) == (is_terminal and not environment)
    assert "\x1b" not in (tmp_path / "log.txt").read_text()


def test_a_file_that_cannot_grow_does_not_end_the_run(tmp_path, capsys):
    setup_logging("main", str(tmp_path / "log.txt"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        log.info("goes to the console all the same")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in capsys.readouterr().err


def test_a_log_file_that_is_a_link_or_no_file_is_neither_written_nor_waited_for(tmp_path, capsys):
    (tmp_path / "own").write_text("text")
    for put in (
        lambda path: path.symlink_to(tmp_path / "own"),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/null"),
    ):
        put(tmp_path / "log.txt")
        setup_logging("main", str(tmp_path / "log.txt"))
        log.info("goes to the console all the same")
        err = capsys.readouterr().err
        assert "log.txt is a" in err or "null is a device" in err
        assert "goes to the console" in err
        (tmp_path / "log.txt").unlink()
    assert (tmp_path / "own").read_text() == "text"


def test_a_log_file_that_is_deleted_is_created_again(tmp_path):
    setup_logging("main", str(tmp_path / "a" / "sf_log.txt"))
    log.info("before")
    shutil.rmtree(tmp_path / "a")
    log.info("first")
    log.info("second")
    lines = (tmp_path / "a" / "sf_log.txt").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second"]


def test_a_line_of_a_terminal_is_the_time_and_the_text(open_terminal):
    terminal = open_terminal()
    setup_logging("main")
    log.info("hello")
    log.warning("careful")
    setup_logging("worker_1", show_warning=lambda name, text: None)
    log.info("from a worker")
    log.error("broken")
    lines = [line[10:] for line in terminal.getvalue().splitlines()]
    assert lines == ["hello", "WARNING careful", "from a worker", "ERROR worker_1: broken"]
    assert re.match(r"\d\d:\d\d:\d\d  hello", terminal.getvalue())


def test_a_record_may_be_for_terminals_only_or_for_all_but_terminals(open_terminal, tmp_path, monkeypatch):
    terminal = open_terminal()
    setup_logging("main", str(tmp_path / "log.txt"))
    log.info("a detail", extra={"on_terminals": False})
    log.info("a sign of life", extra={"on_terminals": True})
    assert terminal.getvalue()[10:] == "a sign of life\n"
    assert (tmp_path / "log.txt").read_text().endswith("INFO a detail\n")
    monkeypatch.setattr(sys, "stderr", other := io.StringIO())
    setup_logging("main")
    log.info("a detail", extra={"on_terminals": False})
    log.info("a sign of life", extra={"on_terminals": True})
    assert other.getvalue().endswith("INFO a detail\n")


def test_a_long_text_is_wrapped_and_a_command_is_not(open_terminal):
    terminal = open_terminal()
    setup_logging("main")
    log.info("%s\n  %s", "word " * 30, "python -m command " * 10)
    *wrapped, command = terminal.getvalue().splitlines()
    assert len(wrapped) > 1 and max(map(len, wrapped)) < 80
    assert all(line.startswith(" " * 10 + "word") for line in wrapped[1:])
    assert command.strip() == "python -m command " * 9 + "python -m command"


def test_a_part_of_the_text_is_bold(open_terminal, monkeypatch):
    terminal = open_terminal("xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    setup_logging("main")
    log.info("frames 1   reward 2", extra={"bold": "reward 2"})
    assert "frames 1   \x1b[1mreward 2\x1b[0m" in terminal.getvalue()


def test_a_warning_of_several_processes_is_shown_once_and_each_is_in_the_file(capfd, tmp_path):
    setup_logging("main", str(tmp_path / "log.txt"))
    children = [Child(f"worker_{i}", Warns, options=ChildOptions(one_shot=True)) for i in range(3)]
    for child in children:
        child.start()
        assert child.join(20) and child.failure is None
    shown = capfd.readouterr().err
    assert shown.count("the folder is not writable") == 1 and "[worker_0] WARNING" in shown
    assert shown.count("this env is old (UserWarning, ") == 1 and "\x1b" not in shown
    assert (tmp_path / "log.txt").read_text().count("this env is old (UserWarning, ") == 3


def test_a_program_that_was_started_without_standard_streams_logs_nowhere_and_its_files_get_other_numbers():
    program = (
        "import os, sys; from sample_factory.runtime.log import log, setup_logging; setup_logging('main'); "
        "log.error('x'); print('x'); sys.exit(7 if os.open(os.devnull, os.O_RDONLY) > 2 else 1)"
    )
    without_streams = ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program]
    assert subprocess.run(without_streams).returncode == 7
