"""--help of every command: what it names, how wide it is, how fast it comes."""

import importlib

import pytest

from sample_factory.config.commands import COMMANDS

WITH_FLAGS = [command for command in COMMANDS if command.common]
ENVS = ["doom_battle", "gym_CartPole-v1"]


def help_of(command, capsys, *argv):
    """Returns what a command prints for --help, with the given flags."""
    main = importlib.import_module(f"sample_factory.{command.module}").main
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--help"] if "--help=all" not in argv else argv)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def too_wide(text, columns):
    return [line for line in text.splitlines() if len(line) > columns]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_alone_has_usage_common_flags_envs_examples_and_the_way_to_the_rest(command, capsys):
    text = help_of(command, capsys)
    assert text.count("\n  # ") == len(command.examples) == 3
    assert "usage: python -m sample_factory" in text
    assert all(f"--{name}" in text for name in command.common)
    assert all(f"  {name}" in text for name, _ in command.envs)
    assert "More help:" in text


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_no_line_is_wider_than_the_terminal(command, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert not too_wide(help_of(command, capsys), columns)
    for argv in ([f"--env={env}", *more] for env in ENVS for more in ([], ["--help=all"])):
        if command.common:
            assert not too_wide(help_of(command, capsys, *argv), columns)
