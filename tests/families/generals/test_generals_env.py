"""The family `generals_`: rules, rewards and infos of its games, and its names and flags."""

import math

import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import NamesActions, ScriptedPlayers, find_ability
from sample_factory.families.generals.generals_env import assets_potential
from tests.envs.made import make_env

NAME = "generals_5x5"


def make(name=NAME, render_mode=None, **flags):
    return make_env(name, render_mode, gamma=0.9, **flags)


def bots_play(env, red, blue):
    """Plays a game to its end; returns the rewards of each step and the last infos."""
    players = find_ability(env, ScriptedPlayers)
    rewards = []
    while env.agents:
        actions = {"red": players.scripted_action(red, 0), "blue": players.scripted_action(blue, 1)}
        _, reward, terminated, truncated, infos = env.step(actions)
        rewards.append((reward["red"], reward["blue"]))
    assert terminated["red"] != truncated["red"]
    return np.array(rewards), terminated["red"], infos


def test_the_winner_gets_1_the_loser_minus_1_and_the_objective_says_who_won():
    env = make(generals_shaping=0.0, generals_time_limit=2000)
    env.reset(seed=2)
    rewards, is_won, infos = bots_play(env, "expander", "expander")
    assert is_won
    assert not rewards[:-1].any() and sorted(rewards[-1]) == [-1, 1]
    for i, name in enumerate(("red", "blue")):
        assert infos[name]["true_objective"] == (1 + rewards[-1, i]) / 2
        assert infos[name]["episode_extra_stats"]["won"] == max(rewards[-1, i], 0)


def test_a_game_at_its_time_limit_is_truncated_and_a_draw():
    env = make(generals_shaping=0.0, generals_time_limit=7)
    env.reset(seed=2)
    rewards, is_won, infos = bots_play(env, "random", "random")
    assert len(rewards) == 7 and not is_won and not rewards.any()
    assert infos["red"]["true_objective"] == infos["blue"]["true_objective"] == 0.5


def test_shaped_rewards_add_up_to_the_result_and_the_first_potential():
    env = make(generals_time_limit=2000)
    _, infos = env.reset(seed=4)
    first = assets_potential(None, infos["red"])
    rewards, is_won, infos = bots_play(env, "expander", "expander")
    discounts = 0.9 ** np.arange(len(rewards))
    result = 2 * infos["red"]["true_objective"] - 1
    assert is_won
    assert (discounts * rewards[:, 0]).sum() == pytest.approx(discounts[-1] * result - first, abs=1e-6)
    assert np.abs(rewards[:-1]).max() > 0


def test_the_potential_is_0_if_equal_1_if_far_ahead_and_of_opposite_sign_for_the_enemy():
    ahead = {"assets": ((20, 10), (30, 10), (2, 1))}
    behind = {"assets": ((10, 20), (10, 30), (1, 2))}
    expected = 0.3 * math.log(2, 4) + 0.3 * math.log(3, 4) + 0.4 * math.log(2, 4)
    assert assets_potential(None, ahead) == pytest.approx(expected)
    assert assets_potential(None, behind) == pytest.approx(-expected)
    assert assets_potential(None, {"assets": ((9, 9), (5, 5), (1, 1))}) == 0
    assert assets_potential(None, {"assets": ((900, 0), (900, 0), (90, 0))}) == pytest.approx(1)


def test_equal_seeds_play_equal_games_and_the_next_game_has_another_map():
    games = []
    for _ in range(2):
        env = make(generals_time_limit=30)
        maps = [env.reset(seed=6)[0]["red"]["obs"]]
        rewards, *_ = bots_play(env, "expander", "random")
        maps.append(env.reset()[0]["red"]["obs"])
        games.append((maps, rewards))
    (first_maps, first_rewards), (second_maps, second_rewards) = games
    np.testing.assert_array_equal(first_maps, second_maps)
    np.testing.assert_array_equal(first_rewards, second_rewards)
    assert (first_maps[0] != first_maps[1]).any()


def test_smaller_maps_are_padded_to_the_size_in_the_name():
    env = make("generals_9x9", generals_grid_size=4)
    sizes = set()
    for seed in range(8):
        observations, _ = env.reset(seed=seed)
        on_map = observations["red"]["obs"][12]
        sizes.add((int(on_map[:, 0].sum()), int(on_map[0].sum())))
        assert observations["red"]["obs"].shape[1:] == (9, 9)
    assert len(sizes) > 3 and min(min(sizes)) >= 4 and max(max(sizes)) <= 9


def test_the_maps_of_the_site_fit_into_24_by_24():
    env = make("generals_1v1")
    observations, _ = env.reset(seed=1)
    assert observations["blue"]["obs"].shape[1:] == (24, 24)
    assert 18 * 18 <= observations["blue"]["obs"][12].sum() <= 23 * 23


def test_against_a_bot_the_env_has_one_agent_on_either_side():
    env = make(generals_opponent="random", generals_time_limit=2000, generals_shaping=0.0)
    env.reset(seed=3)
    results = []
    sides = set()
    for _ in range(6):
        is_over = False
        while not is_over:
            _, reward, terminated, truncated, info = env.step(env.scripted_action("expander", 0))
            is_over = terminated or truncated
        sides.add(env._side)
        results.append(info["true_objective"])
        assert reward == 2 * info["true_objective"] - 1
        env.reset()
    assert sides == {0, 1} and np.mean(results) > 0.5


def test_a_picture_has_the_size_of_the_map_and_actions_have_names():
    env = make(render_mode="rgb_array")
    env.reset(seed=1)
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.shape[2] == 3 and picture.std() > 0
    names = find_ability(env, NamesActions)
    assert names.action_text(200) == "pass"
    assert names.action_text(0) == "all up from row 0, column 0"


@pytest.mark.parametrize("name", ["generals_8x8", "generals_1v1"])
def test_a_map_that_is_larger_than_the_name_says_is_refused_with_the_flag(name):
    with pytest.raises(ConfigError, match="--generals_grid_size"):
        make(name, generals_grid_size=9)
