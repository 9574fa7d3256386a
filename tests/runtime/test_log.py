"""Tests of the log of a run."""

import io
import logging
import sys

import pytest

from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.log import COLOURS, current_settings, log, setup_logging


@pytest.fixture(autouse=True)
def restore_logging():
    yield
    setup_logging("main")


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
    assert current_settings() == (None, logging.WARNING)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_gets_colours(is_terminal, tmp_path, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    setup_logging("main", str(tmp_path / "log.txt"))
    log.error("red")
    assert (COLOURS[logging.ERROR] in stream.getvalue()) == is_terminal
    assert "\x1b" not in (tmp_path / "log.txt").read_text()


def test_a_full_disk_does_not_end_the_run(capsys):
    setup_logging("main", "/dev/full")
    log.info("goes to the console all the same")
    assert "No space left" in capsys.readouterr().err
