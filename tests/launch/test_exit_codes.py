import logging
import resource
import sys

import pytest

from sample_factory import train
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.failures import CommandFailed, Explained, Failure


def raising(error, cause=None):
    def command(arguments):
        raise error from cause

    return command


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (CommandFailed("no display"), 1, "error: no display\n"),
        (Explained("env x: no level 7"), 1, "error: env x: no level 7\n"),
        (ConfigError("--env is missing"), 2, "error: --env is missing\n"),
        (UnknownEnvError("unknown env 'x'"), 2, "error: unknown env 'x'\n"),
        (ImportError("No module named 'x'"), 2, "error: No module named 'x'\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_an_expected_failure_is_one_line_and_an_exit_code(capsys, error, code, printed):
    assert run_command(raising(error), []) == code
    assert capsys.readouterr().err == printed


def test_another_system_than_linux_is_refused_in_one_line(monkeypatch, refused_by):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert refused_by(train.main, "--env=gym_CartPole-v1").endswith("needs Linux, and this is darwin")


@pytest.fixture
def limited_address_space():
    """Limits the address space of this process, far beyond what it uses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (10**14, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


LIBRARY = ImportError("libtorch_cpu.so: failed to map segment from shared object")
PACKAGE = ImportError("env 'x' needs a package that is not installed")


@pytest.mark.parametrize(
    ("error", "cause"), [(LIBRARY, None), (PACKAGE, LIBRARY), (MemoryError("full"), None)]
)
def test_too_little_address_space_is_reported_as_such_in_one_line(
    capsys, limited_address_space, error, cause
):
    assert run_command(raising(error, cause), []) == 1
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"error: {type(error).__name__}: {error} (test_exit_codes.py:")
    assert line.endswith("the address space is limited to 100,000,000 MB (ulimit -v); it should be unlimited")


def test_without_a_limit_a_library_that_cannot_be_loaded_is_named(capsys):
    assert run_command(raising(PACKAGE, LIBRARY), []) == 2
    assert capsys.readouterr().err == f"error: {PACKAGE}\n"


def test_a_failed_child_is_logged_with_its_name(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("sample_factory"), "propagate", True)
    assert run_command(raising(Failure("sampler_1", "ended by signal 9")), []) == 1
    assert caplog.messages == ["sampler_1: ended by signal 9"]


def test_an_exit_in_user_code_is_named_and_one_of_this_package_is_not(capsys):
    def exits(arguments):
        sys.exit(0)

    assert run_command(exits, []) == 1
    error, *trace = capsys.readouterr().err.splitlines()
    assert error.startswith("error: SystemExit: 0 (test_exit_codes.py:") and trace[-1] == "SystemExit: 0"
    with pytest.raises(SystemExit) as caught:
        run_command(lambda arguments: parse_config(["--help"], resolve_family), [])
    assert caught.value.code == 0


def test_any_other_exception_propagates():
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()), [])


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1)])
def test_the_exit_code_of_a_command_is_returned(returned, code):
    given = []
    assert run_command(lambda arguments: given.append(arguments) or returned, ["--a"]) == code
    assert given == [["--a"]]


def test_without_arguments_those_of_the_process_are_parsed(monkeypatch):
    monkeypatch.setattr("sys.argv", ["program", "--b=1"])
    given = []
    assert run_command(given.append) == 0
    assert given == [["--b=1"]]
