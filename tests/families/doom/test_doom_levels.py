"""Maps and skills of Doom envs, chosen by flags, by specs and in a running game."""

import logging
import zipfile
from pathlib import Path

import numpy as np
import pytest
import vizdoom

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ChangesLevel
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.levels import find_levels
from sample_factory.families.doom import game_configuration
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import DoomSpec, MatchSpec
from sample_factory.families.doom.film import WITNESSES
from sample_factory.families.doom.make_doom_env import engine_settings
from tests.envs.made import cfg_of

SCENARIOS = Path(vizdoom.scenarios_path)
CORRIDOR = "doom_deadly_corridor"
FREEDOOM = DoomSpec("doom_freedoom", str(SCENARIOS / "freedoom2.cfg"), flat(20))
MAPS = ("map01", "map02")
BUTTONS = "available_buttons = { MOVE_LEFT MOVE_RIGHT ATTACK }\n"


@pytest.fixture
def own_spec(tmp_path):
    """A function of the lines of a .cfg: a spec of a scenario with three buttons."""

    def spec(lines="", **fields) -> DoomSpec:
        path = tmp_path / "own.cfg"
        path.write_text(BUTTONS + lines)
        return DoomSpec("doom_own", str(path), flat(4), **fields)

    return spec


def life_times(env, num_episodes=1):
    """Returns the steps of episodes in which the agent stands still, always those of the same seeds."""
    lengths = []
    for seed in range(num_episodes):
        env.reset(seed=seed)
        ended = False
        lengths.append(0)
        while not ended:
            *_, terminated, truncated, _ = env.step((0, 0, 0, 0))
            ended = terminated or truncated
            lengths[-1] += 1
    return lengths


def first_picture(env):
    observation, _ = env.reset(seed=1)
    return observation["obs"]


def game_of(env) -> vizdoom.DoomGame:
    return env.agent.engine.game


def test_a_skill_that_changes_in_a_running_game_has_the_life_times_of_a_new_game(make_env, caplog):
    easy, hard = (life_times(make_env(CORRIDOR, doom_skill=skill)) for skill in (1, 5))
    assert np.mean(easy) > 2 * np.mean(hard)
    env = make_env(CORRIDOR, "rgb_array", doom_skill=5)
    assert isinstance(env, ChangesLevel) and life_times(env) == hard
    with caplog.at_level(logging.WARNING, "sample_factory"):
        assert env.change_level({"doom_skill": 1}) and life_times(env) == easy
        assert env.change_level({"doom_skill": None}) and life_times(env) == hard, "the skill of the .cfg"
    assert not caplog.records, "the pictures show another game"


def test_a_map_that_changes_in_a_running_game_is_the_map_of_a_new_game(make_env):
    pictures = {name: first_picture(make_env("doom_x", spec=FREEDOOM, doom_map=name)) for name in MAPS}
    assert (pictures["map01"] != pictures["map02"]).any()
    env = make_env("doom_x", "rgb_array", FREEDOOM)
    for doom_map in reversed(MAPS):  # one before the engine starts, one while it runs
        assert env.change_level({"doom_map": doom_map})
        np.testing.assert_array_equal(first_picture(env), pictures[doom_map])
        assert game_of(env).get_doom_map() == doom_map
        seen, shown = (
            [game.get_game_variable(variable) for variable in WITNESSES]
            for game in (game_of(env), env._viewer._engine.game)
        )
        assert seen == shown


def test_an_env_says_which_levels_need_a_new_env(make_env):
    env = make_env("doom_x", spec=FREEDOOM)
    assert not env.change_level({"doom_wad": str(SCENARIOS / "basic.wad")})
    assert not env.change_level({"doom_skill": 5, "res_w": 64})
    assert not make_env("doom_duel_bots", num_bots=1).change_level({"doom_skill": 5})
    assert env.agent.engine.settings.doom_skill is None
    with pytest.raises(ValueError, match="no map map99.*MAP01, MAP02"):
        env.change_level({"doom_map": "map99"})


def test_flags_override_the_spec_and_the_spec_the_cfg(make_env, own_spec):
    lines = "doom_scenario_path = basic.wad\ndoom_skill = 2\ndoom_map = map01\n"
    cases = (
        ({}, {}, "basic.wad", "map01", 2),
        ({"wad": "freedoom2.wad", "doom_skill": 3}, {}, "freedoom2.wad", "map01", 3),
        (
            {"wad": "freedoom2.wad", "doom_map": "map01"},
            {"doom_map": "map02", "doom_skill": 4},
            "freedoom2.wad",
            "map02",
            4,
        ),
        (
            {"wad": "freedoom2.wad"},
            {"doom_wad": str(SCENARIOS / "deathmatch.wad")},
            "deathmatch.wad",
            "map01",
            2,
        ),
    )
    for fields, flags, wad, doom_map, skill in cases:
        game = game_of(make_env("doom_x", spec=own_spec(lines, **fields), **flags))
        chosen = Path(game.get_doom_scenario_path()).name, game.get_doom_map(), game.get_doom_skill()
        assert chosen == (wad, doom_map, skill)


def test_a_cfg_without_a_wad_plays_the_maps_of_the_game(make_env, own_spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    game = game_of(make_env("doom_x", spec=own_spec("living_reward = 1\n")))
    assert (game.get_doom_scenario_path(), Path(game.get_doom_game_path()).name) == ("", "freedoom2.wad")
    game = game_of(make_env("doom_x", spec=own_spec(), doom_iwad="freedoom1.wad", doom_map="E1M2"))
    assert Path(game.get_doom_game_path()).name == "freedoom1.wad"
    (tmp_path / "doom2.wad").symlink_to(SCENARIOS.parent / "freedoom2.wad")
    game = game_of(make_env("doom_x", spec=own_spec()))
    assert Path(game.get_doom_game_path()) == SCENARIOS.parent / "freedoom2.wad"


def test_only_files_are_looked_for_in_the_working_directory(make_env, own_spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("map02", "3", "None", "own.wad"):
        (tmp_path / name).symlink_to(SCENARIOS.parent / "freedoom2.wad")
    env = make_env("doom_x", spec=own_spec(doom_map="map02", doom_skill=3), doom_wad="own.wad")
    settings = env.agent.engine.settings
    assert settings[settings._fields.index("wad") :][:4] == (str(tmp_path / "own.wad"), "map02", 3, None)


def wrong(tmp_path):
    (tmp_path / "text.wad").write_text("no maps in here")
    (tmp_path / "short.wad").write_bytes(b"PWAD")
    (tmp_path / "empty.wad").write_bytes(b"PWAD" + bytes(8))
    with zipfile.ZipFile(tmp_path / "own.pk3", "w") as archive:
        archive.writestr("maps/hall.wad", b"")


@pytest.mark.parametrize(
    ("lines", "flags", "message"),
    [
        ("", {"doom_map": "map77"}, "freedoom2.wad has no map map77; it has MAP01, .*--doom_map"),
        ("", {"doom_map": "map01; quit"}, "no map map01; quit; it has"),
        ("", {"doom_wad": "text.wad"}, "text.wad is no .wad file"),
        ("", {"doom_wad": "short.wad"}, "short.wad has no maps"),
        ("", {"doom_wad": "empty.wad"}, "empty.wad has no maps"),
        ("", {"doom_wad": "own.pk3"}, "own.pk3 has no map map01; it has HALL"),
        ("", {"doom_skill": 7}, "doom_skill=7: must be 1, easy, to 5"),
        ("", {"doom_wad": "none.wad"}, "none.wad was not found.*--doom_wad"),
        ("", {"doom_iwad": "freedoom1.wad"}, "freedoom1.wad has no map map01; it has E1M1"),
        ("doom_game_path = doom2.wad", {}, "doom2.wad was not found.*--doom_iwad"),
        ("doom_scenario_path = none.wad", {}, "none.wad was not found.*--doom_scenarios_dir"),
    ],
)
def test_wrong_maps_and_skills_are_one_line(make_env, own_spec, tmp_path, lines, flags, message):
    wrong(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        make_env("doom_x", spec=own_spec(lines), **flags)
    assert "\n" not in str(error.value) and "pip install" not in str(error.value)


def test_a_human_is_invited_to_the_same_map_and_skill(own_spec, doom_cfg):
    spec = own_spec("doom_scenario_path = cig.wad", match=MatchSpec(1, 0), doom_map="map02")
    cfg = doom_cfg(num_humans=1, doom_skill=2, doom_wad=str(SCENARIOS / "cig.wad"))
    invitation = engine_settings("doom_own", spec, cfg).invitation(5029)
    assert f"--doom_wad={SCENARIOS / 'cig.wad'} --doom_map=map02 --doom_skill=2" in invitation


def test_lines_that_vizdoom_ignores_are_logged_once_with_key_and_number(make_env, own_spec, caplog, capfd):
    game_configuration.warn_once.cache_clear()
    lines = "unknown_key = 3\nliving_reward = x\navailable_game_variables = { HEALHT }\nliving_reward = 2\n"
    with caplog.at_level(logging.WARNING, "sample_factory"):
        for _ in range(2):
            env = make_env("doom_x", spec=own_spec(lines, wad="basic.wad"))
    assert game_of(env).get_living_reward() == 2
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3 and all(text.startswith(f"{env._spec.scenario}: ") for text in texts)
    assert "unknown_key in line #2" in texts[0] and "x in line #3" in texts[1] and "healht" in texts[2]
    assert "WARNING" not in capfd.readouterr().err


def levels_of(*items, **flags):
    cfg = cfg_of("doom_basic", doom_levels=items, **flags)
    levels = find_levels(resolve_family("doom_basic"), cfg)
    return {level.name: (Path(level.flags["doom_wad"]).name, level.flags["doom_map"]) for level in levels}


def test_doom_levels_are_maps_of_files_folders_and_patterns(tmp_path):
    assert levels_of("deadly_corridor.wad", "freedoom2.wad:MAP02", "freedoom2.wad:map01") == {
        "deadly_corridor": ("deadly_corridor.wad", "map01"),
        "freedoom2:map02": ("freedoom2.wad", "map02"),
        "freedoom2:map01": ("freedoom2.wad", "map01"),
    }
    assert len(levels_of("freedoom2.wad")) == 32
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("two.wad", "one.wad", "note.txt"):
            (tmp_path / folder / name).write_bytes((SCENARIOS / "basic.wad").read_bytes())
    assert list(levels_of(f"{tmp_path}/a")) == ["one", "two"]
    assert list(levels_of(f"{tmp_path}/*/t*.wad")) == ["a.two", "b.two"]
    assert list(levels_of(f"{tmp_path}/a", f"{tmp_path}/a/one.wad")) == ["one", "two"], "each map once"


def test_doom_levels_have_names_of_their_own_and_may_be_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("new/maps", "old/maps"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.wad").write_bytes((SCENARIOS / "basic.wad").read_bytes())
    assert list(levels_of("~/new/maps/one.wad", "basic.wad")) == ["one", "basic"]
    with pytest.raises(ConfigError, match="new/maps/one.wad and .*old/maps/one.wad would both be called"):
        levels_of("~/new/maps/one.wad", "~/old/maps/one.wad:map01")


@pytest.mark.parametrize(
    ("item", "levels", "message"),
    [
        ("basic.wad", ("doom_skill=1",), "both list levels; add one of them without a value"),
        ("basik.wad", (), "basik.wad was not found"),
        ("basic.wad:map09", (), "has no map map09; it has map01"),
        ("no*.wad", (), "there is no .wad file"),
        (__file__, (), "is no .wad file"),
    ],
)
def test_doom_levels_that_there_are_not_or_beside_levels_are_refused(item, levels, message):
    with pytest.raises(ConfigError, match=message):
        levels_of(item, levels=levels)
