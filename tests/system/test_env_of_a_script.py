"""A command takes `env=`, for an env that only a script has."""

import pytest

from sample_factory.__main__ import main
from sample_factory.envs import env_registry
from sample_factory.launch.objects_of_call import with_names
from tests.evaluation.conftest import SMALL, save_untrained
from tests.evaluation.playable_envs import Cards


class Game(Cards):
    """Two agents."""


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))


def test_a_command_takes_the_class_of_an_env_and_says_so_if_it_is_missing(tmp_path, capsys):
    name = with_names({"env": Game})["env"]
    save_untrained(tmp_path, name, *SMALL)
    (tmp_path / "tiny").rename(tmp_path / "other")
    flags = save_untrained(tmp_path, name, *SMALL)
    del env_registry._FAMILIES[name]
    match = ["match", *flags, "--opponent_experiment=other", "--num_matches=2", "--serial_mode=True"]
    assert main(match) == 2
    error = capsys.readouterr().err
    assert "start that script, with a line such as sample_factory.enjoy.main(env=MyEnv)" in error
    assert "__main__ is every command" in error and error.count("\n") == 1
    assert main(match, env=Game) == 0
    assert "2 matches" in capsys.readouterr().out
