"""`minigrid_<id>`: names, flags, and equal observations on both engines."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.families import minigrid_family
from sample_factory.families.minigrid_family import (
    FIRST_UNKNOWN,
    VOCABULARY_SIZE,
    MinigridFlags,
    mission_tokens,
)
from tests.envs.adapters.countdown import drive
from tests.envs.made import make_env

ENGINES = ("envpool", "gymnasium")


def make(name, **flags):
    return make_env(name, **{"vector_env_copies": 1, **flags})


def space_of(env):
    return env.single_observation_space if isinstance(env, gym.vector.VectorEnv) else env.observation_space


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("minigrid_DoorKey-5x5-v0", "MiniGrid-DoorKey-5x5-v0"),
        ("minigrid_MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKey-5x5-v0"),
        ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKey-5x5-v0"),  # version 1
        ("minigrid_BabyAI-GoToObj-v0", "BabyAI-GoToObj-v0"),
        ("minigrid_GoToObj-v0", "BabyAI-GoToObj-v0"),
        ("minigrid_Unlock-v0", "MiniGrid-Unlock-v0"),  # both suites have it
        ("minigrid_BabyAI-Unlock-v0", "BabyAI-Unlock-v0"),
    ],
)
def test_a_name_has_an_id_with_or_without_its_suite(name, env_id):
    resolve_family(name)
    assert minigrid_family.find_id(name) == env_id


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("minigrid_DoorKey-5x5", "minigrid_DoorKey-5x5-v0"),
        ("minigrid_doorkey-5x5-v0", "minigrid_DoorKey-5x5-v0"),
        ("minigrid_BabyAI-GoToObject-v0", "minigrid_BabyAI-GoToObj-v0"),
        ("MiniGrid-DoorKey-5x5-v3", "minigrid_MiniGrid-DoorKey-5x5-v0"),
    ],
)
def test_the_error_for_a_mistyped_name_has_the_nearest(name, nearest):
    with pytest.raises(UnknownEnvError, match=f"did you mean {nearest}?"):
        resolve_family(name)


def test_the_default_engine_is_envpool_if_it_has_the_env():
    def engine(name):
        return resolve_family(name).defaults["env_engine"]

    assert engine("minigrid_DoorKey-5x5-v0") == "envpool"
    assert engine("minigrid_MultiRoom-N4-S5-v1") == "gymnasium"
    gym.register("MiniGrid-Mine-v0", lambda: None)
    try:
        assert engine("minigrid_Mine-v0") == "gymnasium"
    finally:
        del gym.registry["MiniGrid-Mine-v0"]


def test_the_mission_is_left_out_by_default_where_it_never_changes():
    assert set(space_of(make("minigrid_DoorKey-5x5-v0"))) == {"obs", "direction"}
    assert set(space_of(make("minigrid_GoToDoor-5x5-v0"))) == {"obs", "direction", "mission"}
    assert set(space_of(make("minigrid_GoToDoor-5x5-v0", minigrid_mission="drop"))) == {"obs", "direction"}


@pytest.mark.parametrize("flags", [{}, {"minigrid_view_size": 9}])
def test_both_engines_have_the_same_space(flags):
    for name in ("minigrid_DoorKey-5x5-v0", "minigrid_BabyAI-GoToSeq-v0"):
        first, second = (space_of(make(name, env_engine=engine, **flags)) for engine in ENGINES)
        assert first == second


def test_both_engines_play_the_same_game():
    # This env has no chance in it. Forward twice, right, forward twice reaches the goal.
    envs = [make("minigrid_Empty-5x5-v0", env_engine=engine, minigrid_mission="tokens") for engine in ENGINES]
    (ours, our_results), (theirs, their_results) = (drive(adapt(env), (2, 2, 1, 2, 2)) for env in envs)
    for own, other in zip(ours[:-1], theirs[:-1], strict=True):
        for key in ("obs", "direction", "mission"):
            assert (own[key] == other[key]).all(), key
    for own, other in zip(our_results, their_results, strict=True):
        assert float(own.rewards[0]) == pytest.approx(float(other.rewards[0]))
        assert bool(own.terminated[0]) == bool(other.terminated[0])
    assert our_results[-1].terminated[0] and our_results[-1].rewards[0] > 0.9


def test_the_tokens_of_a_batch_are_those_of_its_texts_after_every_step():
    pool = make("envpool_MiniGrid-GoToDoor-5x5-v0", vector_env_copies=4)
    texts = []

    class Spy(gym.vector.VectorWrapper):
        def reset(self, **kwargs):
            observations, infos = super().reset(**kwargs)
            texts.append(observations["mission"].copy())
            return observations, infos

        def step(self, actions):
            observations, *rest = super().step(actions)
            texts.append(observations["mission"].copy())
            return observations, *rest

    env = minigrid_family.EncodedBatches(Spy(pool), 8)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=3)
    seen = set()
    for _ in range(150):  # episodes have at most 100 steps, and new missions
        for row, mission in enumerate(texts[-1]):
            text = bytes(mission).rstrip(b"\0").decode()
            seen.add((row, text))
            assert (observations["mission"][row] == mission_tokens(text, 8)).all()
        observations, *_ = env.step(rng.integers(7, size=4))
    assert len(seen) > 4


def test_every_mission_of_the_package_is_in_the_vocabulary():
    import minigrid  # noqa: F401

    for env_id in gym.registry:
        if env_id.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in env_id:
            env = gym.make(env_id, disable_env_checker=True)
            for _ in range(3):
                (observation, _) = env.reset(seed=7)
                tokens = mission_tokens(observation["mission"], 72)
                assert (tokens < FIRST_UNKNOWN).all(), observation["mission"]
                assert tokens[-1] == 0, "longer than 72 words"


def test_tokens_do_not_depend_on_case_and_end_with_padding():
    tokens = mission_tokens("Go to the red door, then the box", 12)
    assert (tokens == mission_tokens("go to the RED door , then the box", 12)).all()
    assert (tokens[:9] > 0).all() and (tokens[9:] == 0).all()
    assert (mission_tokens("go to the red door", 3) == tokens[:3]).all()


def test_a_word_that_is_not_in_the_vocabulary_has_the_same_token_in_every_process():
    (token,) = mission_tokens("xylophone", 1)
    assert token == 62  # a checksum of its letters; Python's hash would differ between processes
    assert FIRST_UNKNOWN <= token < VOCABULARY_SIZE


@pytest.mark.parametrize(
    ("observation", "shape"),
    [("full", (5, 5, 3)), ("rgb_partial", (56, 56, 3)), ("rgb_full", (40, 40, 3))],
)
def test_the_other_views_are_those_of_minigrid_s_wrappers(observation, shape):
    env = make("minigrid_DoorKey-5x5-v0", env_engine="gymnasium", minigrid_observation=observation)
    obs = env.observation_space["obs"]
    assert obs.shape == shape
    assert obs.dtype == (np.int32 if observation == "full" else np.uint8)
    assert env.observation_space.contains(env.reset(seed=1)[0])
    with pytest.raises(ConfigError, match="add --env_engine=gymnasium"):
        make("minigrid_DoorKey-5x5-v0", env_engine="envpool", minigrid_observation=observation)


@pytest.mark.parametrize("size", [5, 9])
def test_a_picture_of_the_partial_view_has_the_size_of_the_view(size):
    flags = {"minigrid_observation": "rgb_partial", "minigrid_view_size": size}
    env = make("minigrid_DoorKey-5x5-v0", env_engine="gymnasium", **flags)
    assert env.observation_space["obs"].shape == (8 * size, 8 * size, 3)
    assert env.observation_space.contains(env.reset(seed=1)[0])


def test_the_side_of_the_view_is_odd():
    with pytest.raises(ConfigError, match="--minigrid_view_size=4"):
        MinigridFlags(minigrid_view_size=4)
