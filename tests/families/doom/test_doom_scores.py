import numpy as np
import pytest

from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import DoomSpec
from sample_factory.families.doom.engine import BotDifficulty
from sample_factory.families.doom.player_score import (
    PlayerScore,
    final_place,
    is_match_won,
    leader_gap,
    match_stats,
    match_variables,
)
from sample_factory.families.doom.shaping_schemes import AGAINST_BOTS

VARIABLES = {name: place for place, name in enumerate(match_variables(True))}


def values(**known: float) -> list[float]:
    return [known.get(name, 0.0) for name in VARIABLES]


def test_players_with_equal_frags_share_the_better_place():
    frags = [3, 5, 5, 1]
    assert [final_place(frags, player) for player in range(4)] == [3, 1, 1, 4]


def test_the_gap_is_negative_for_a_sole_leader_and_zero_in_a_tie():
    assert leader_gap([3, 5, 1], 0) == 2
    assert leader_gap([3, 5, 1], 1) == -2
    assert leader_gap([5, 5, 1], 0) == 0
    assert leader_gap([5], 0) == 0


def test_counters_that_the_engine_does_not_reset_count_from_the_start():
    at_start = values(DEATHCOUNT=7.0, HITCOUNT=3.0, DAMAGECOUNT=100.0)
    at_end = values(
        DEATHCOUNT=10.0,
        HITCOUNT=4.0,
        DAMAGECOUNT=120.0,
        FRAGCOUNT=2.0,
        PLAYER_NUMBER=1.0,
        PLAYER_COUNT=2.0,
        PLAYER1_FRAGCOUNT=1.0,
        PLAYER2_FRAGCOUNT=2.0,
    )
    stats = match_stats(at_end, at_start, VARIABLES)
    assert stats == {
        "frags": 2,
        "deaths": 3,
        "kdr": 0.5,
        "hits": 1,
        "damage": 20,
        "num_players": 2,
        "final_place": 1,
        "leader_gap": -1,
    }
    assert is_match_won(stats)


def test_player_numbers_stay_the_same_after_a_player_has_left():
    at_start = values(PLAYER_COUNT=3.0, PLAYER_NUMBER=2.0)
    at_end = values(PLAYER_COUNT=2.0, PLAYER_NUMBER=2.0, PLAYER1_FRAGCOUNT=4.0, PLAYER3_FRAGCOUNT=1.0)
    stats = match_stats(at_end, at_start, VARIABLES)
    assert (stats["num_players"], stats["final_place"], stats["leader_gap"]) == (3, 2, 3)


@pytest.mark.parametrize("place, gap, is_won", [(1, -1, True), (1, 0, False), (2, 1, False)])
def test_a_tie_is_not_a_victory(place, gap, is_won):
    assert is_match_won({"final_place": place, "leader_gap": gap}) == is_won


@pytest.mark.parametrize(
    "start, place, gap, after",
    [(20, 1, -2, 30), (20, 1, 0, 20), (20, 7, 5, 10), (0, 8, 5, 0), (150, 8, 5, 150)],
)
def test_bots_get_better_after_a_victory_and_worse_after_the_last_places(start, place, gap, after):
    difficulty = BotDifficulty(start)
    stats = {"final_place": float(place), "leader_gap": float(gap), "num_players": 8.0}
    difficulty.update(stats)
    assert difficulty.difficulty == after
    assert stats["bot_difficulty"] == start


def test_levels_of_bots_stay_within_those_that_exist():
    for start in (0, 150):
        for name in BotDifficulty(start).draw(20, np.random.default_rng(0)):
            assert 10 <= int(name.split("_")[1]) <= 100


def test_nothing_is_paid_for_a_change_between_episodes():
    shaping = {"delta": {"FRAGCOUNT": AGAINST_BOTS["delta"]["FRAGCOUNT"]}}
    spec = DoomSpec("my_env", "basic.cfg", flat(4), shaping=shaping)
    score = PlayerScore(spec, {"FRAGCOUNT": 0})
    rewards = []
    for frags in (0.0, 5.0):
        score.start([0.0])
        rewards += [score.step(0.0, [frags]), score.step(0.0, [5.0])]
        score.end(0.0, [5.0])
    assert rewards == [0.0, 5.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "shaped", [{"shaping": {"delta": {"HEALTH": {"gain": 1.0, "loss": -1.0}}}}, {"reward_healing": True}]
)
def test_an_episode_whose_rewards_are_shaped_is_judged_by_those_of_the_engine(shaped):
    for change, objective in ({}, None), (shaped, 0.75):
        score = PlayerScore(
            DoomSpec("my_env", "basic.cfg", flat(4), reward_scale=0.25, **change), {"HEALTH": 0}
        )
        score.start([50.0])
        score.step(1.0, [90.0])
        assert score.end(2.0, [90.0])[1].get("true_objective") == objective
