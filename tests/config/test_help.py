"""--help of every command: what it names, how wide it is, and that it loads nothing heavy."""

import re
import subprocess
import sys

import pytest

from sample_factory import __main__, __version__
from sample_factory.config.command import ENV_FAMILIES
from sample_factory.config.flags import NEVER
from sample_factory.config.help import COMMON
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_registry import resolve_family
from sample_factory.families.doom.doom_family import doom_defaults
from sample_factory.hub import ENJOY
from sample_factory.training.command import COMMAND as TRAIN
from tests.config.declared_commands import COMMAND_OF, DECLARED

WITH_ENV = [command for command in DECLARED if command.experiment]
BY_NAME = pytest.mark.parametrize("command", DECLARED, ids=lambda command: command.name)
ENVS = ["doom_battle", "gym_CartPole-v1"]


def main_of(command):
    return __main__.command(command.name)


def common_of(command):
    """Returns the flags of the short help, those that the command reads."""
    return [name for name in COMMON if command.reads and name in command.reads - command.instead.keys()]


def help_of(command, capsys, *argv):
    """Returns what a command prints with these flags, --help among them."""
    with pytest.raises(SystemExit) as ended:
        main_of(command)(argv)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def all_helps(command, capsys):
    """Yields the helps of a command: without an env, and those of train and enjoy with each of several."""
    yield help_of(command, capsys, "--help")
    yield help_of(command, capsys, "--help=all")
    for env in ENVS if command in (TRAIN, ENJOY) else ():
        yield help_of(command, capsys, f"--env={env}", "--help")
        yield help_of(command, capsys, f"--env={env}", "--help=all")


@BY_NAME
def test_help_alone_has_usage_common_flags_three_examples_and_the_way_to_the_rest(command, capsys):
    text = help_of(command, capsys, "--help")
    assert text.startswith(f"usage: python -m sample_factory {command.name} ")
    assert text.count("\n  # ") == 3
    assert all(f"\n  --{name}" in text for name in common_of(command))
    assert len(common_of(command)) >= 2 or not command.experiment
    assert all(f"\n  {name} " in text for name, _ in ENV_FAMILIES) or command.experiment != "resumed"
    assert "--env=ENV --help" in text or not command.experiment
    assert text.count("\n") <= 100


@BY_NAME
def test_lines_fit_the_terminal_and_a_limit_that_is_never_reached_is_called_never(
    command, capsys, monkeypatch
):
    for columns in (80, 120) if command is TRAIN else (80,):
        monkeypatch.setenv("COLUMNS", str(columns))
        for text in all_helps(command, capsys):
            examples = ("usage: ", "  python ")  # to copy, in one line each
            lines = [line for line in text.splitlines() if not line.startswith(examples)]
            assert [line for line in lines if len(line) > columns] == []
            assert not re.search(r"10_?000_?000_?000\b|1e\+?10|None", text)


def test_never_is_accepted_where_it_is_shown(tmp_path):
    argv = ["--env=doom_basic", f"--train_dir={tmp_path}", "--train_for_env_steps=never"]
    assert parse_config(argv, resolve_family).monitoring.train_for_env_steps == NEVER


@pytest.mark.parametrize("command", WITH_ENV, ids=lambda command: command.name)
def test_the_help_for_an_env_has_its_own_section_common_flags_and_those_of_the_family(command, capsys):
    short = help_of(command, capsys, "--env=doom_battle", "--help")
    assert short.index("Common flags:") < short.index("Flags of envs like doom_battle:")
    assert "--adam_eps" not in short and "--res_w" in short
    everything = help_of(command, capsys, "--env=doom_battle", "--help=all")
    assert "--adam_eps" in everything and "--res_w" in everything
    assert all(f"\n  --{name}" in short and f"\n  --{name}" in everything for name in common_of(command))


def test_defaults_are_those_of_the_env(capsys):
    rate = doom_defaults("doom_battle")["learning_rate"]
    assert f"training (default: {rate})" in " ".join(
        help_of(TRAIN, capsys, "--env=doom_battle", "--help").split()
    )
    assert "training (default: 0.0001)" in " ".join(help_of(TRAIN, capsys, "--help").split())


@pytest.mark.parametrize("name", ["enjoy", "match"])
def test_the_help_needs_no_experiment(name, capsys):
    assert "usage: " in help_of(COMMAND_OF[name], capsys, "--experiment=none", "--help")


@pytest.mark.parametrize("command", WITH_ENV, ids=lambda command: command.name)
def test_the_examples_use_flags_that_the_command_has(command, capsys):
    text = help_of(command, capsys, "--env=doom_duel", "--help=all")
    assert set(re.findall(r"--\w+", command.examples)) <= set(re.findall(r"--\w+", text))


@pytest.mark.parametrize("command", [TRAIN, ENJOY])
def test_the_help_alone_is_not_that_of_an_experiment_with_the_default_name(
    command, capsys, tmp_path, monkeypatch
):
    saved = tmp_path / "train_dir" / RunFlags().experiment
    saved.mkdir(parents=True)
    (saved / "cfg.json").write_text('{"env": "gym_CartPole-v1"}')
    monkeypatch.chdir(tmp_path)
    here = f"--train_dir={tmp_path / 'train_dir'}"
    assert "gym_CartPole-v1:" not in help_of(command, capsys, here, "--help")
    named = help_of(command, capsys, here, f"--experiment={RunFlags().experiment}", "--help")
    assert "Flags of envs like gym_CartPole-v1:" in named


def test_help_loads_neither_torch_nor_a_simulator():
    """Tools that play or record load gymnasium."""
    with_gymnasium = ["match", "record", "push_to_hub"]
    names = [command.name for command in DECLARED if command.name not in with_gymnasium]
    program = (
        "import sys\n"
        "from sample_factory.__main__ import main\n"
        f"last_without_gymnasium = {names[-1]!r}\n"
        f"for name in {names + with_gymnasium!r}:\n"
        "    try:\n"
        "        main([name, '--help'])\n"
        "    except SystemExit:\n"
        "        pass\n"
        "    if name == last_without_gymnasium:\n"
        "        print('gymnasium' in sys.modules)\n"
        "heavy = ('torch', 'vizdoom', 'matplotlib', 'tensorboard', 'pettingzoo')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "False" in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("argv", [[], ["--help"], ["help"]])
def test_the_package_lists_its_commands_and_how_to_begin(argv, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert __main__.main(argv) == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if not line.startswith("  python ")]
    assert [line for line in lines if len(line) > 80] == []
    assert all(f"\n  {command.name} " in text for command in DECLARED)
    assert text.count("\n  # ") == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "unknown command trian; did you mean train? Known: train, enjoy"),
        (["qqqqq"], "unknown command qqqqq. Known: train, enjoy"),
        (["--env=doom_basic"], "a command is missing before --env=doom_basic"),
        (["train", "--env=battle"], "did you mean doom_battle?"),
        (["plot_curves"], "no experiment was given"),
    ],
)
def test_the_package_runs_its_commands_and_names_those_it_has(argv, message, capsys):
    assert __main__.main(argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_package_prints_its_version(capsys):
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_a_reader_that_ends_early_is_no_error():
    command = f"{sys.executable} -m sample_factory.train --env=doom_basic --help=all | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert result.stdout.startswith("usage: ") and result.stderr == ""
