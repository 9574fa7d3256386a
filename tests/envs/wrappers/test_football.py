"""Scores, checkpoints and pictures of football."""

import math

import numpy as np
import pytest

from sample_factory.envs.wrappers.football import (
    BALL,
    CONTROLLED_PLAYER,
    GRASS,
    HEIGHT,
    OUR_TEAM,
    PIXEL_SIDE,
    WIDTH,
    Checkpoints,
    draw,
)


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
