"""Compares all pictures of the product, also the last one of each episode, with `render` of the packages."""

import importlib
import os

import gymnasium as gym
import numpy as np
import pytest

from sample_factory import enjoy
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.evaluation.video import VideoWriter, resize
from tests.conformance.ledger import Tally
from tests.conformance.product import adapted_by_name, digests
from tests.evaluation.conftest import SMALL, saved_experiment  # noqa: F401

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame


def number_of(picture) -> int:
    return int(digests(np.asarray(picture)[None])[0])


def drawn(env, num_steps):
    """Plays random actions in an adapted env. Returns the actions, a picture after each step, and the last
    picture of each episode."""
    rows = ObservationRows.allocate(env.kinds)
    draw = RandomActions(env.kinds, seed=0)
    actions, pictures, last = [], [], []
    env.at_end.append(lambda: last.append(number_of(env.render())))
    env.reset(1, rows)
    for _ in range(num_steps):
        actions.append(draw(rows))
        env.step(actions[-1], rows)
        pictures.append(number_of(env.render()))
    env.close()
    return np.stack(actions)[:, :, 0].astype(int), pictures, last


@pytest.mark.parametrize(
    ("package", "env_name", "env_id", "num_steps", "kwargs"),
    [
        ("gymnasium", "gym_CartPole-v1", "CartPole-v1", 600, {}),
        ("vizdoom Gymnasium ids", "gym_VizdoomBasic-v1", "VizdoomBasic-v1", 700, {}),
        ("ale-py", "gym_ALE/Breakout-v5", "ALE/Breakout-v5", 800, {}),
        ("minigrid", "minigrid_LavaGapS5-v0", "MiniGrid-LavaGapS5-v0", 600, {"env_engine": "gymnasium"}),
    ],
)
def test_single_envs(package, env_name, env_id, num_steps, kwargs, count):
    flags = {"vector_env_copies": 1, **kwargs}
    actions, pictures, last = drawn(adapted_by_name(env_name, "rgb_array", **flags), num_steps)
    env = gym.make(env_id, render_mode="rgb_array")
    plain, plain_last = [], []
    env.reset(seed=1)
    for action in actions[:, 0]:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            plain_last.append(number_of(env.render()))
            env.reset()
        plain.append(number_of(env.render()))
    env.close()
    assert last == plain_last and len(last) > 1 and pictures == plain
    count(package, Tally("", len(last), len(actions)))


def test_parallel_envs(count):
    module, kwargs = "butterfly.knights_archers_zombies_v11", '{"max_cycles": 120, "spawn_delay": 2}'
    env = adapted_by_name(f"pettingzoo_{module}", "rgb_array", env_kwargs=kwargs)
    actions, pictures, last = drawn(env, 400)
    env = importlib.import_module(f"pettingzoo.{module}").parallel_env(
        max_cycles=120, spawn_delay=2, render_mode="rgb_array"
    )
    plain, plain_last = [], []
    env.reset(seed=1)
    for row in actions:
        env.step({name: action for name, action in zip(env.possible_agents, row) if name in env.agents})
        if not env.agents:
            plain_last.append(number_of(env.render()))
            env.reset()
        plain.append(number_of(env.render()))
    env.close()
    assert last == plain_last and len(last) > 1 and pictures == plain
    count("pettingzoo parallel", Tally("", len(last), len(actions)))


def test_videos_have_the_last_picture_of_each_episode(saved_experiment, monkeypatch):  # noqa: F811
    flags = ["--env_engine=gymnasium", "--vector_env_copies=1"]
    place = saved_experiment("minigrid_LavaGapS5-v0", *SMALL, *flags)
    written, last = [], []
    write, step = VideoWriter.write, gym.wrappers.OrderEnforcing.step

    def keep(writer, picture):
        written.append(picture.copy())
        write(writer, picture)

    def step_and_draw(env, action):
        returned = step(env, action)
        if returned[2] or returned[3]:
            last.append(env.render())
        return returned

    monkeypatch.setattr(VideoWriter, "write", keep)
    monkeypatch.setattr(gym.wrappers.OrderEnforcing, "step", step_and_draw)
    assert enjoy.main([*place, "--save_video", "--no_render", "--max_num_episodes=5", "--seed=1"]) == 0
    assert len(last) == 5
    height = len(written[0])
    below_text = slice(height // 2, height)
    for picture in last:
        expected = resize(picture, written[0].shape[1::-1])[below_text]
        assert any((own[below_text] == expected).all() for own in written)
