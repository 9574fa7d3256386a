"""Options and fixtures of all tests."""

import os
import re
import shutil
import signal
import sys
import tempfile

import pytest
from hypothesis import settings

from sample_factory.runtime import cpu
from sample_factory.runtime import log as log_module

# Before torch is imported: for tensors as small as those of the tests, a second thread takes two to four
# times the CPU time. Processes that the tests start inherit it.
os.environ.update(cpu.ONE_THREAD)

# The tests start a thousand processes: without files of bytecode, each would compile the package again, which
# takes a third of its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts background jobs with SIGINT ignored, nohup any program with SIGHUP ignored; programs that the
# tests interrupt must not inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The key with which runs sign their cfg.json, so that none is written for the account that runs the tests.
CONFIG_HOME = tempfile.mkdtemp(prefix="config_home_")
os.environ["XDG_CONFIG_HOME"] = CONFIG_HOME


def pytest_unconfigure():
    shutil.rmtree(CONFIG_HOME, ignore_errors=True)


# Files that take minutes. They begin first, so that no process is left with one at the end.
LONG = [f"tests/{name}" for name in ("examples/", "exporting/", "system/test_deaths", "system/", "runner/")]


def pytest_collection_modifyitems(items):
    def rank(item) -> int:
        return next((i for i, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))

    items.sort(key=rank)


def pytest_addoption(parser):
    parser.addoption("--soak", type=float, default=0.0, metavar="SECONDS", help="length of test_soak.py")


LOG = log_module.log
LOGGING = (list(LOG.handlers), LOG.level, LOG.propagate, log_module._log_file)  # before any test


def restore_logging() -> None:
    LOG.handlers[:], level, LOG.propagate, log_module._log_file = LOGGING
    LOG.setLevel(level)


@pytest.fixture(autouse=True)
def restored_logging():
    """A test, or a fixture of many tests, that sets logging up must not change what the next one captures."""
    restore_logging()
    yield
    restore_logging()


@pytest.fixture
def refused_by(capfd):
    """Returns refused_by(main, *flags), which runs a command and returns the line with which it refuses."""

    def refusal(main, *flags: str, may_log: bool = False) -> str:
        """may_log: whether lines of a log may come before, and not only "Checking ENV ..."."""
        capfd.readouterr()
        assert main([*flags]) == 2
        shown = capfd.readouterr()
        before = re.compile(r"\[\d{4}-|.* \.\.\.$" if may_log else r".* \.\.\.$")
        lines = [line for line in shown.err.splitlines() if not before.match(line)]
        assert len(lines) == 1 and lines[0].startswith("error: ") and shown.out == "", shown
        return lines[0]

    return refusal


# Generated tests try the same 200 examples in every run. With --hypothesis-profile=many, they try 2,000 new
# ones.
settings.register_profile("suite", max_examples=200, deadline=None, derandomize=True, database=None)
settings.register_profile("many", max_examples=2000, deadline=None, database=None)
settings.load_profile("suite")
