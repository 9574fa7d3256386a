"""`pettingzoo_<module>`: names, and errors for envs that cannot be made."""

import sys

import pytest
from pettingzoo import AECEnv

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from tests.envs.made import make_env
from tests.envs.parallel_envs import Cards


def test_a_name_is_a_module_or_a_function_of_one(tmp_path, monkeypatch):
    (tmp_path / "my_games").mkdir()
    (tmp_path / "my_games" / "cards_v0.py").write_text(
        "from tests.envs.parallel_envs import make_cards as parallel_env\nother = parallel_env\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_games.cards_v0", "my_games/cards_v0", "my_games.cards_v0:other"):
        assert isinstance(make_env(f"pettingzoo_{name}"), Cards)


@pytest.mark.parametrize("game", ["tictactoe_v3", "connect_four_v3"])
def test_a_game_that_is_only_turn_based_is_made_by_the_modules_other_function(game):
    assert isinstance(make_env(f"pettingzoo_classic.{game}"), AECEnv)


@pytest.mark.parametrize("name", ["..x", "no_such_game.x", "butterfly.", "a b"])
def test_the_error_for_a_name_that_is_no_module_says_what_a_name_is(name):
    with pytest.raises(UnknownEnvError, match="After pettingzoo_ comes a module"):
        resolve_family(f"pettingzoo_{name}")


def test_a_game_whose_package_is_missing_names_pettingzoos_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("pettingzoo.butterfly")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"pip install 'pettingzoo\[butterfly\]'"):
        make_env("pettingzoo_butterfly.cooperative_pong_v6")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (":none", "tests.envs.parallel_envs has no none"),
        ("", "tests.envs.parallel_envs has no parallel_env"),
        (":NUM_CARDS", "NUM_CARDS of tests.envs.parallel_envs cannot be called"),
    ],
)
def test_the_error_for_what_is_no_function_of_a_module_is_one_line(function, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        make_env(f"pettingzoo_tests.envs.parallel_envs{function}")
    assert "\n" not in str(error.value)


def test_arguments_by_flag_reach_the_function_and_unknown_ones_are_named():
    name = "pettingzoo_tests.envs.parallel_envs:make_cards_of_any_size"
    assert make_env(name, env_kwargs='{"size": 3}').size == 3
    with pytest.raises(ConfigError, match="has no argument 'sice'; did you mean size?"):
        make_env(name, env_kwargs='{"sice": 3}')
