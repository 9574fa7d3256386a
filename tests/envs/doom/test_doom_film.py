"""A film of a Doom env has a picture of every tic and shows the same game."""

import types

import numpy as np
import pytest

from sample_factory.config.sections import flat_values
from sample_factory.envs.doom.doom_family import DoomFlags, doom_defaults
from sample_factory.envs.doom.make_doom_env import make_doom_env

pytestmark = pytest.mark.timeout(60)


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
            # The last picture is that of the observation; single sprites may be a pixel off.
            assert np.mean(film[-1] != still) < 0.05
