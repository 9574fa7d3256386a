import logging

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.experiment.exit_codes import run_command
from sample_factory.runtime.command_failed import CommandFailed
from sample_factory.runtime.failures import ChildFailed, PermanentFailure


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (CommandFailed("no display"), 1, "error: no display\n"),
        (PermanentFailure("env x: no level 7"), 1, "error: env x: no level 7\n"),
        (ConfigError("--env is missing"), 2, "error: --env is missing\n"),
        (UnknownEnvError("unknown env 'x'"), 2, "error: unknown env 'x'\n"),
        (ImportError("No module named 'x'"), 2, "error: No module named 'x'\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_an_expected_failure_is_one_line_and_an_exit_code(capsys, error, code, printed):
    def command(arguments):
        raise error

    assert run_command(command, []) == code
    assert capsys.readouterr().err == printed


def test_a_failed_child_is_logged_with_its_name(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("sample_factory"), "propagate", True)

    def command(arguments):
        raise ChildFailed("sampler_1", "ended by signal 9")

    assert run_command(command, []) == 1
    assert caplog.messages == ["sampler_1 failed: ended by signal 9"]


def test_any_other_exception_propagates():
    def command(arguments):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(command, [])


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
