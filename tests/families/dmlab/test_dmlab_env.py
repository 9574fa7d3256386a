"""The `dmlab_` family on a stand-in for DeepMind Lab; see stand_in/deepmind_lab.py."""

import math

import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_trial import try_out
from sample_factory.families.dmlab.dmlab_env import (
    ACTIONS,
    EXTENDED_ACTIONS,
    instruction_tokens,
    shaped_reward,
)
from sample_factory.families.dmlab.levels import DMLAB_30, WITH_GENERATED_MAPS, find_spec

FORWARD, BACKWARD = 0, 1
WATERMAZE = "dmlab_rooms_watermaze"


def play(env, action):
    """Plays an episode; returns its rewards, its last observation, and the info of its end."""
    env.reset()
    rewards = []
    while True:
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        assert not truncated
        if terminated:
            return rewards, observation, info


def test_rewards_are_squeezed_and_the_score_is_the_engines(make):
    env = make(WATERMAZE, "--env_frameskip=8")
    rewards, observation, info = play(env, FORWARD)
    assert rewards == [5 * math.tanh(4 / 5)] * 3
    assert info["true_objective"] == 12
    assert info["episode_extra_stats"] == {
        "z_00_rooms_watermaze_dmlab_raw_score": 12,
        "z_00_rooms_watermaze_len": 24,
    }
    assert observation["obs"][1, 0, 0] == 16, "the last picture before the end"
    rewards, _, info = play(env, BACKWARD)
    assert rewards == pytest.approx([-0.3 * 5 * math.tanh(4 / 5)] * 3)
    assert info["true_objective"] == -12, "each episode counts its own score"


@pytest.mark.parametrize(
    "reward, shaped", [(0, 0), (1, 5 * math.tanh(0.2)), (-1, -1.5 * math.tanh(0.2)), (99, 5)]
)
def test_negative_rewards_count_less(reward, shaped):
    assert shaped_reward(reward) == pytest.approx(shaped)


def test_the_observation_is_a_picture_with_channels_first_and_tokens(make):
    env = make("dmlab_language_select_described_object")
    observation, _ = env.reset(seed=5)
    assert observation["obs"].shape == (3, 72, 96) and observation["obs"].dtype == np.uint8
    assert env.observation_space["INSTR"].sizes == (1000,) * 16
    assert np.array_equal(observation["INSTR"], instruction_tokens("Pick the red object"))
    assert observation["INSTR"].dtype == np.int32
    assert env.render().shape == (72, 96, 3)
    try_out(adapt(env), "dmlab")


def test_flags_set_the_size_of_the_picture_and_leave_out_instructions(make):
    env = make(WATERMAZE, "--res_w=40", "--res_h=30", "--dmlab_with_instructions=False")
    observation, _ = env.reset(seed=5)
    assert {key: value.shape for key, value in observation.items()} == {"obs": (3, 30, 40)}
    assert env.lab.config == {"width": "40", "height": "30"}


def test_tokens_are_hashes_of_words_padded_with_zeros():
    tokens = instruction_tokens("go to the red red door")
    assert tokens[3] == tokens[4] != tokens[5]
    assert (tokens[:6] > 0).all() and (tokens[:6] < 1000).all() and not tokens[6:].any()
    # md5("go") is 34d1f91fb2e514b8576fab1a75a89a6b.
    assert tokens[0] == 0x34D1F91FB2E514B8576FAB1A75A89A6B % 999 + 1
    assert np.array_equal(instruction_tokens("word " * 20), np.full(16, instruction_tokens("word")[0]))
    assert not instruction_tokens("").any()


@pytest.mark.parametrize(
    "flags, actions", [((), ACTIONS), (("--dmlab_extended_action_set",), EXTENDED_ACTIONS)]
)
def test_each_action_reaches_the_engine(make, flags, actions):
    env = make(WATERMAZE, *flags)
    assert env.action_space.n == len(actions)
    for index, (text, numbers) in enumerate(actions.items()):
        env.reset()
        env.step(index)
        assert env.lab.last_action == tuple(numbers)
        assert env.action_text(index) == text
    assert len(actions) == len(set(map(tuple, actions.values()))) == (15 if flags else 9)


def test_seeds_determine_the_episodes_without_a_cache(make):
    flags = [WATERMAZE, "--dmlab_use_level_cache=False"]

    def seeds(env, seed):
        env.reset(seed=seed)
        first = env.lab.seed
        env.reset()
        return first, env.lab.seed

    first = seeds(make(*flags), 7)
    assert first == seeds(make(*flags), 7) and first[0] != first[1]
    assert first != seeds(make(*flags), 8)


def test_the_benchmark_has_the_same_episodes_random_actions_and_no_instructions(make):
    envs = [
        make(WATERMAZE, "--dmlab_throughput_benchmark", "--dmlab_use_level_cache=False") for _ in range(2)
    ]
    played = []
    for seed, env in enumerate(envs):
        observation, _ = env.reset(seed=seed)
        assert set(observation) == {"obs"}
        actions = []
        for _ in range(4):
            env.step(FORWARD)
            actions.append(env.lab.last_action)
        played.append((env.lab.seed, actions))
    assert played[0] == played[1] and len(set(played[0][1])) > 1


def test_envs_of_dmlab_30_have_the_tasks_in_turn(make):
    envs = [make("dmlab_30", worker_index=2, env_id=env_id) for env_id in (0, 3, 31)]
    names = list(DMLAB_30)
    levels = [f"contributed/dmlab30/{names[index]}" for index in (0, 3, 1)]
    assert [env.lab.level for env in envs] == levels
    _, _, info = play(envs[1], FORWARD)
    assert next(iter(info["episode_extra_stats"])) == "z_03_rooms_watermaze_dmlab_raw_score"


def test_a_worker_can_have_one_task(make):
    flag = "--dmlab_one_task_per_worker"
    envs = [make("dmlab_30", flag, worker_index=32, env_id=env_id) for env_id in (0, 1)]
    assert [env.lab.level for env in envs] == [f"contributed/dmlab30/{list(DMLAB_30)[2]}"] * 2


@pytest.mark.parametrize("worker_index, gpu", [(0, "1"), (1, "3"), (2, "1")])
def test_workers_take_turns_with_the_gpus(make, worker_index, gpu):
    flags = ["--dmlab_renderer=hardware", "--dmlab_gpus", "1", "3"]
    env = make(WATERMAZE, *flags, worker_index=worker_index)
    assert (env.lab.renderer, env.lab.config["gpuDeviceIndex"]) == ("hardware", gpu)


def test_held_out_levels_may_be_played(make):
    env = make("dmlab_rooms_collect_good_objects_test")
    assert env.lab.level == "contributed/dmlab30/rooms_collect_good_objects_test"


def test_levels_with_pictures_need_the_data_set(make, tmp_path):
    name = "dmlab_psychlab_continuous_recognition"
    with pytest.raises(ConfigError, match="--dmlab30_dataset=.*brady_konkle_oliva2008, and there is no such"):
        make(name)
    assert make(name, f"--dmlab30_dataset={tmp_path}").lab.config["datasetPath"] == str(tmp_path)


@pytest.mark.parametrize(
    "name, levels",
    [
        ("dmlab_benchmark", ["contributed/dmlab30/rooms_collect_good_objects_train"]),
        ("dmlab_rooms_keys_doors_puzzle", ["contributed/dmlab30/rooms_keys_doors_puzzle"]),
        ("dmlab_seekavoid_arena_01", ["seekavoid_arena_01"]),
        ("dmlab_contributed/psychlab/harlow", ["contributed/psychlab/harlow"]),
        ("dmlab_mine/rooms_watermaz", ["mine/rooms_watermaz"]),
        ("dmlab_my_own_level", ["my_own_level"]),
    ],
)
def test_names_of_version_1_of_dmlab_30_and_of_any_other_level(name, levels):
    assert find_spec(name).levels == levels


def test_the_level_cache_env_has_the_15_levels_that_generate_maps():
    assert len(find_spec("dmlab_level_cache").levels) == len(WITH_GENERATED_MAPS) == 15
    assert len(find_spec("dmlab_30").levels) == 30
    assert find_spec("dmlab_very_sparse").settings == {"minGoalDistance": "10"}
