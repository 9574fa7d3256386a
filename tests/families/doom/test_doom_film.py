"""A film of a Doom env has a picture of every tic and shows the same game."""

import types

import numpy as np
import pytest

from sample_factory.config.sections import flat_values
from sample_factory.families.doom.doom_family import DoomFlags, doom_defaults
from sample_factory.families.doom.film import split_screen, split_width
from sample_factory.families.doom.make_doom_env import make_doom_env


def play(render_mode, num_steps=40):
    """Plays at random with one seed; returns rewards, terminated, truncated and pictures of each step."""
    cfg = types.SimpleNamespace(**flat_values(DoomFlags()), **doom_defaults("doom_basic"))
    env = make_doom_env("doom_basic", cfg, render_mode=render_mode)
    rng = np.random.default_rng(0)
    rows = []
    env.reset(seed=3)
    env.render()
    for _ in range(num_steps):
        _, reward, terminated, truncated, _ = env.step(int(rng.integers(4)))
        rows.append((reward, terminated, truncated, env.render()))
        if terminated or truncated:
            env.reset()
            env.render()
    env.close()
    return [list(column) for column in zip(*rows)]


def test_filming_does_not_change_the_game_and_gives_four_pictures_a_step():
    rewards, terminated, truncated, stills = play("rgb_array")
    filmed_rewards, filmed_terminated, filmed_truncated, films = play("rgb_array_list")
    assert filmed_rewards == rewards and filmed_terminated == terminated and filmed_truncated == truncated
    for still, film, ended in zip(stills, films, np.logical_or(terminated, truncated)):
        assert all(picture.shape == still.shape == (480, 640, 3) for picture in film)
        assert len(film) < 4 if ended else len(film) == 4
        if not ended:
            # The engine draws a moving sprite occasionally a pixel off where it stops after every tic.
            assert np.mean(film[-1] != still) < 0.05


@pytest.mark.parametrize(
    "name, flags",
    [
        ("doom_health_gathering", {}),
        ("doom_deathmatch_bots", {"timelimit": 0.1, "start_bot_difficulty": 50}),
    ],
)
def test_pictures_show_the_game_that_is_played(make_env, caplog, monkeypatch, name, flags):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    env = make_env(name, "rgb_array_list", **flags)
    env.action_space.seed(1)
    env.reset(seed=1)
    for _ in range(50):
        if any(env.step(env.action_space.sample())[2:4]):
            env.reset()
        env.render()
    assert "no longer show the game" not in caplog.text


def test_pictures_of_another_game_are_reported_once(make_env, caplog, monkeypatch):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    env = make_env("doom_my_way_home_flat_actions", "rgb_array")
    env.reset(seed=1)
    for _ in range(5):
        env._viewer.step([1.0, 0.0, 0.0, 0.0])
    assert caplog.text.count("the pictures no longer show the game that the policy plays") == 1


@pytest.mark.parametrize("count, shape", [(1, (3, 4)), (2, (3, 12)), (4, (10, 12)), (8, (17, 20))])
def test_a_split_screen_has_dividers_and_up_to_as_many_rows_as_columns(count, shape):
    pictures = [np.full((3, 4, 3), 1 + index, np.uint8) for index in range(count)]
    screen = split_screen(pictures)
    assert screen.shape == (*shape, 3)
    assert [(screen == index).sum() for index in range(1, count + 1)] == [36] * count
    assert [split_width(num) for num in (1, 2, 4, 8)] == [640, 640, 480, 320]
