"""Games in cooperation, on a map of vizdoom's with starts for two players: -1 in each tic."""

import struct

import numpy as np
import pytest
from vizdoom import GameVariable

from sample_factory.families.doom import game_configuration
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import DoomSpec, MatchSpec
from sample_factory.families.doom.game_configuration import find_wad
from sample_factory.families.doom.wad import Starts, count_starts, map_names
from tests.families.doom.wads import with_starts, write_wad

TICS = 105
COOP = MatchSpec(2, 0, minutes=TICS / 2100, deathmatch=False)
NOTHING = [0, 0]
CONFIG = """
doom_scenario_path = coop.wad
screen_format = CRCGCB
living_reward = -1
available_buttons = { MOVE_LEFT MOVE_RIGHT ATTACK }
"""
LIVES_ONCE = {"sv_forcerespawn": 0, "sv_norespawn": 1}


@pytest.fixture
def spec(tmp_path):
    """A function of a match, and starts of the map, that returns a spec."""

    def describe(match, starts=(1, 2), buttons="", **kwargs):
        with_starts(tmp_path / "coop.wad", starts)
        path = tmp_path / "coop.cfg"
        path.write_text(CONFIG.replace("ATTACK", f"{buttons or 'ATTACK'}"))
        return DoomSpec("coop", str(path), flat(4), match=match, **kwargs)

    return describe


def games(env):
    return [agent.engine.game for agent in env.agents]


def play_on(env, num_steps=100):
    """Plays until an episode ends; returns the sum of rewards by agent, and the last step's results."""
    total = np.zeros(env.num_agents)
    for _ in range(num_steps):
        returned = env.step(NOTHING)
        total += returned[1]
        if any(returned[2]) or any(returned[3]):
            return total, returned
    raise AssertionError("no episode ends")


def test_a_game_in_cooperation_is_cut_by_its_time_and_reports_kills_in_place_of_frags(make_env, spec):
    env = make_env("coop", spec=spec(COOP, objective="engine_return"))
    env.reset(seed=1)
    places = {game.get_game_variable(GameVariable.POSITION_Y) for game in games(env)}
    assert places == {32.0, 96.0}, "the starts of players 1 and 2"
    for _ in range(2):
        total, (_, _, terminated, truncated, infos) = play_on(env)
        assert (terminated, truncated) == ([False, False], [True, True])
        for reward, info in zip(total, infos):
            stats = info["episode_extra_stats"]
            assert set(stats) == {"kills", "deaths", "hits", "damage", "num_players"}
            assert stats["num_players"] == 2
            assert info["true_objective"] == reward == -(TICS - 1)


def test_a_player_that_cannot_respawn_is_terminated_and_waits_for_the_next_match(make_env, spec):
    env = make_env("coop", spec=spec(COOP._replace(settings=LIVES_ONCE)))
    env.reset(seed=1)
    games(env)[1].send_game_command("kill")
    _, (_, rewards, terminated, truncated, infos) = play_on(env)
    assert (terminated, truncated) == ([False, True], [False, False])
    assert infos[1]["episode_extra_stats"]["deaths"] == 1 and infos[0] == {}
    assert [info.get("is_active", True) for info in infos] == [True, False]
    _, rewards, terminated, _, infos = env.step(NOTHING)
    assert (rewards[0], rewards[1]) == (-4, 0) and terminated == [False, False]
    assert [info.get("is_active", True) for info in infos] == [True, False]
    games(env)[0].send_game_command("kill")
    _, (_, rewards, terminated, truncated, infos) = play_on(env)
    assert (terminated, truncated) == ([True, False], [False, False]), "each episode ends once"
    assert [info.get("is_active", True) for info in infos] == [True, True], "none is left: the next match"
    assert games(env)[0].get_episode_time() < 3 and not any(game.is_player_dead() for game in games(env))
    assert play_on(env)[1][3] == [True, True]


@pytest.mark.parametrize(
    ("settings", "buttons", "is_end"),
    [
        ({}, "", False),
        ({"sv_forcerespawn": 0}, "", True),
        ({"sv_forcerespawn": 0}, "USE", False),
        ({"sv_norespawn": 1}, "USE", True),
    ],
)
def test_death_is_an_end_where_the_player_cannot_respawn(make_env, spec, settings, buttons, is_end):
    """Alone: the rule is the same for one engine and for several."""
    match = COOP._replace(num_agents=1, settings=settings)
    env = make_env("coop", spec=spec(match, buttons=buttons))
    env.reset(seed=1)
    env.agent.engine.game.send_game_command("kill")
    press_use = 3 if buttons else 0
    ends = [env.step(press_use)[2:4] for _ in range(2)]
    assert (ends[-1][0] or ends[0][0]) == is_end and not any(truncated for _, truncated in ends)


@pytest.mark.parametrize("can_be_left", [False, True])
def test_leaving_the_level_terminates_all_and_rewards_count_where_the_spec_allows_it(
    make_env, spec, can_be_left, caplog
):
    game_configuration.warn_once.cache_clear()
    env = make_env("coop", spec=spec(COOP._replace(settings={"sv_noexit": not can_be_left})))
    env.reset(seed=1)
    env.step(NOTHING)
    games(env)[0].send_game_command("changemap map01")
    _, rewards, terminated, truncated, _ = env.step(NOTHING)
    assert (terminated, truncated) == ([True, True], [False, False])
    assert [reward < 0 for reward in rewards] == [can_be_left] * 2
    assert ("sv_noexit" in caplog.text) != can_be_left


@pytest.mark.parametrize(
    ("match", "starts", "message"),
    [
        (None, (2, 11), "map01 of .*coop.wad has no start of player 1, but 1 deathmatch starts"),
        (MatchSpec(2, 0), (1, 2), r"no deathmatch starts; play it with MatchSpec\(deathmatch=False\)"),
        (COOP._replace(num_agents=4), (1, 2), "2 starts for 4 players"),
        (COOP._replace(num_bots=1), (1, 2), "2 starts for 3 players"),
        (COOP._replace(settings={"sv_noexits": 1}), (1, 2), "the engine has no setting sv_noexits"),
        (COOP._replace(settings={"fraglimit": 1}), (1, 2), "the engine has no setting fraglimit"),
        (COOP._replace(settings={"sv_noexit": "yes"}), (1, 2), "sv_noexit='yes' should be a number"),
        (COOP._replace(start_bot_difficulty=20), (1, 2), "this is no deathmatch"),
    ],
)
def test_what_the_map_or_the_engine_lacks_is_one_line(make_env, spec, match, starts, message):
    with pytest.raises(ValueError, match=message) as raised:
        make_env("coop", spec=spec(match, starts))
    assert "\n" not in str(raised.value)


def test_frags_are_no_objective_in_cooperation(make_env, spec):
    with pytest.raises(ValueError, match="objective='match_won' needs a deathmatch"):
        make_env("coop", spec=spec(COOP, objective="match_won"))


def test_starts_are_counted_in_maps_of_each_format(tmp_path):
    types = (1, 2, 4001, 11, 3004)
    doom = b"".join(struct.pack("<5h", 11, 1, 2, kind, 7) for kind in types)
    hexen = b"".join(struct.pack("<7h6B", 11, 1, 2, 0, 0, kind, 7, *[1] * 6) for kind in types)
    udmf = "// thing { type = 1; }\n" + "".join(f"Thing{{x=1.0;\ntype = {kind} ;}}" for kind in types)
    wad = write_wad(
        tmp_path / "maps.wad",
        [
            *(("E1M1", b""), ("THINGS", doom), ("LINEDEFS", b""), ("BLOCKMAP", b"")),
            *(("map02", b""), ("THINGS", hexen), ("LINEDEFS", b""), ("BEHAVIOR", b"")),
            *(("MAP03", b""), ("TEXTMAP", udmf.encode()), ("BEHAVIOR", b""), ("ENDMAP", b"")),
            *(("MAP04", b""), ("TEXTMAP", b"namespace = zdoom;"), ("ENDMAP", b"")),
        ],
    )
    assert map_names(wad) == ["E1M1", "MAP02", "MAP03", "MAP04"]
    assert {count_starts(wad, name) for name in ("e1m1", "map02", "MAP03")} == {Starts(3, True, 1)}
    assert count_starts(wad, "map04") == Starts(0, False, 0)
    wad.write_bytes(wad.read_bytes()[:-5])
    with pytest.raises(ValueError, match="maps.wad is cut off"):
        map_names(wad)


def test_starts_of_maps_in_the_package():
    """ViZDoom 1.3.2: a deathmatch crashes without a deathmatch start and needs no more than one, and a game
    for one player crashes without the start of player 1."""
    assert count_starts(find_wad("cig.wad")[0], "map01") == Starts(0, False, 25)
    assert count_starts(find_wad("multi_duel.wad")[0], "map01") == Starts(0, False, 2)
    assert count_starts(find_wad("deathmatch.wad")[0], "map01") == Starts(3, True, 0)
