"""Football in EnvPool: names, rewards, scores."""

import math

import numpy as np
import pytest

pytest.importorskip("envpool")

import envpool

from sample_factory.envs.abilities import StepsInBackground
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.end_infos import extra_stats, true_objective
from sample_factory.envs.protocol import ObservationRows
from sample_factory.families.football_family import (
    BALL,
    CONTROLLED_PLAYER,
    FOOTBALL_ENVS,
    GRASS,
    HEIGHT,
    OUR_TEAM,
    PIXEL_SIDE,
    WIDTH,
    Checkpoints,
    draw,
)
from tests.envs.made import make_env

RIGHT, SHOT = 5, 12


def make(**flags):
    return make_env("football_academy_empty_goal_close", vector_env_copies=2, **flags)


def score_a_goal(rewards):
    """The first of two matches runs and shoots, the second does nothing. Returns (return, end info)."""
    env = adapt(make(football_rewards=rewards))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(3, rows)
    episode_return = 0.0
    for step in range(60):
        result = env.step(np.array([[RIGHT if step < 6 else SHOT], [0]], np.float32), rows)
        episode_return += result.rewards[0]
        assert result.rewards[1] == 0
        if result.terminated[0]:
            env.close()
            return episode_return, result.end_infos[0]
    raise AssertionError("no goal within 60 steps")


def test_the_names_are_those_of_envpool():
    prefix, suffix = "gfootball/", "-v1"
    known = [name for name in envpool.list_all_envs() if name.startswith(prefix)]
    assert set(FOOTBALL_ENVS) == {f"football_{n.removeprefix(prefix).removesuffix(suffix)}" for n in known}


def test_a_goal_is_worth_1_and_the_true_objective_is_the_difference_of_goals():
    episode_return, info = score_a_goal("scoring")
    assert episode_return == 1
    assert true_objective(info, episode_return) == 1
    assert extra_stats(info)[0] == {"goals": 1, "goals_conceded": 0}


def test_a_goal_brings_all_ten_checkpoints_which_do_not_count_for_the_true_objective():
    episode_return, info = score_a_goal("scoring,checkpoints")
    assert episode_return == pytest.approx(2)
    assert true_objective(info, episode_return) == 1


def test_the_picture_is_the_mini_map_of_the_first_match():
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    (picture,) = env.render()
    assert picture.shape == (576, 768, 3)
    assert picture.std() > 0
    env.close()
    without_mode = make()
    without_mode.reset(seed=0)
    assert without_mode.render() is None
    without_mode.close()


def test_a_worker_can_do_other_things_while_envpool_steps():
    env = make()
    assert isinstance(env, StepsInBackground)
    env.reset(seed=0)
    env.send(np.zeros(2, np.int32))
    *_, infos = env.receive()
    np.testing.assert_equal(infos["elapsed_step"], [1, 1])
    np.testing.assert_equal(infos["true_objective"], [0, 0])
    env.close()


def mini_maps(*balls):
    """Returns a mini map for each position (row, column) of the ball."""
    maps = np.zeros((len(balls), HEIGHT, WIDTH, 4), np.uint8)
    for mini_map, (row, column) in zip(maps, balls):
        mini_map[row, column, BALL] = 255
    return maps


def infos(owners, match_numbers):
    return {"ball_owned_team": np.array(owners), "episode_number": np.array(match_numbers, np.int32)}


def slow_rewards(ball, owner, goal, num_reached):
    """Checkpoints of one match, one after the other. Returns (reward, checkpoints reached so far)."""
    if goal == 1:
        return 0.1 * (10 - num_reached), 10
    if owner != OUR_TEAM:
        return 0.0, num_reached
    row, column = ball
    x = (column + 0.5) / WIDTH * 2 - 1
    y = ((row + 0.5) / HEIGHT - 0.5) * 2 / 2.25
    distance = math.sqrt((x - 1) ** 2 + y**2)
    reward = 0.0
    while num_reached < 10 and distance <= 0.99 - 0.8 / 9 * num_reached:
        reward += 0.1
        num_reached += 1
    return reward, num_reached


def test_checkpoints_of_all_matches_are_those_of_each_match_in_a_loop():
    random = np.random.default_rng(0)
    num_matches = 20
    checkpoints = Checkpoints(num_matches)
    num_reached = [0] * num_matches
    matches = np.ones(num_matches, int)
    for _ in range(100):
        balls = np.stack(
            [random.integers(HEIGHT, size=num_matches), random.integers(WIDTH, size=num_matches)], 1
        )
        owners = random.integers(-1, 2, size=num_matches)
        goals = random.choice([-1, 0, 0, 0, 0, 1], size=num_matches)
        begins = random.random(num_matches) < 0.2
        matches += begins
        found = checkpoints.rewards(mini_maps(*balls), goals, infos(owners, matches))
        for match in range(num_matches):
            before = 0 if begins[match] else num_reached[match]
            expected, num_reached[match] = slow_rewards(balls[match], owners[match], goals[match], before)
            assert found[match] == pytest.approx(expected, abs=1e-6)


def test_a_picture_shows_the_ball_inside_of_the_player_who_is_controlled():
    mini_map = mini_maps((10, 20))[0]
    mini_map[10, 20, [OUR_TEAM, CONTROLLED_PLAYER]] = 255
    picture = draw(mini_map)
    top, left = 10 * PIXEL_SIDE, 20 * PIXEL_SIDE
    assert picture.shape == (HEIGHT * PIXEL_SIDE, WIDTH * PIXEL_SIDE, 3)
    assert tuple(picture[top + PIXEL_SIDE // 2, left + PIXEL_SIDE // 2]) == (255, 255, 255)
    assert tuple(picture[top, left]) == (120, 200, 255)
    assert tuple(picture[top + PIXEL_SIDE, left]) == GRASS
