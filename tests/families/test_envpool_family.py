import itertools
import math
import os
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("envpool")

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import max_episode_steps
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EPISODE_CONTINUES, EnvConfig, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.envs.wrappers.team_view import view_of_team
from sample_factory.families import envpool_engine
from sample_factory.families.atari.atari_family import atari_defaults
from sample_factory.families.envpool_engine import FLAG_OF_OPTION
from sample_factory.families.envpool_vector_env import JOINT_MASK, EnvPoolInfos
from sample_factory.families.mujoco_family import mujoco_defaults
from sample_factory.families.procgen_family import procgen_defaults
from sample_factory.spaces.actions import ACTION_MASK
from tests.envs.made import cfg_of, config_of, make_env


def make(task_id, copies=3, **flags):
    return make_env(f"envpool_{task_id}", vector_env_copies=copies, **flags)


def play(env, num_steps, seed=0):
    """Returns the adapted env's rows and all StepResults of random play."""
    env = adapt(env)
    rows = ObservationRows.allocate(env.kinds)
    draw = RandomActions(env.kinds, seed=0)
    env.reset(seed, rows)
    results = [env.step(draw(rows), rows) for _ in range(num_steps)]
    env.close()
    return rows, results


def test_a_single_copy_is_a_vector_env_too():
    env = make("CartPole-v1", copies=1)
    assert isinstance(env, gym.vector.VectorEnv)
    rows, results = play(env, 30)
    assert rows.arrays["obs"].shape == (1, 1, 4)
    assert sum(result.terminated[0] for result in results) >= 1


def test_the_seed_of_reset_decides_what_happens():
    (first, _), (second, _), (third, _) = (play(make("CartPole-v1"), 5, seed) for seed in (1, 1, 2))
    np.testing.assert_equal(first.arrays["obs"], second.arrays["obs"])
    assert (first.arrays["obs"] != third.arrays["obs"]).any()


def test_an_agent_is_inactive_in_the_step_that_only_resets_its_copy():
    _, results = play(make("CartPole-v1"), 50)
    for result, following in itertools.pairwise(results):
        active = np.ones(3, bool) if result.active is None else result.active
        np.testing.assert_equal(active, ~result.terminated)
        assert not following.rewards[~active].any()


def test_the_limit_of_episodes_is_known():
    assert max_episode_steps(make("CartPole-v1")) == 500
    assert max_episode_steps(make("Catch-v0")) is None


def test_arguments_reach_envpool():
    env = make("Pong-v5", env_frameskip=3, env_kwargs={"stack_num": 2})
    assert env.single_observation_space.shape == (2, 84, 84)
    env.reset(seed=0)
    assert env._pool.config["frame_skip"] == 3
    env.close()


@pytest.mark.parametrize(
    ("task_id", "teams"),
    [("CartPole-v1", (0, 1)), ("TicTacToe-v1", (0, 0, 1, 1)), ("intersection-multi-agent-v0", (0, 0, 1, 1))],
)
def test_the_players_of_a_copy_are_a_team_of_their_own(task_id, teams):
    info = env_info(adapt(make(task_id, copies=2)), cfg_of(f"envpool_{task_id}"))
    assert info.teams == teams
    if len(set(teams)) < len(teams):
        view_of_team(info.kinds, info.teams)  # for the centralised critic


def test_in_a_turn_based_game_the_player_who_waits_has_one_action_without_effect():
    env = adapt(make("TicTacToe-v1", copies=2))
    rows = ObservationRows.allocate(env.kinds)
    draw = RandomActions(env.kinds, seed=0)
    assert env.reset(0, rows) is None, "all players are active"
    to_move = None
    for _ in range(8):
        waits = (rows.arrays[ACTION_MASK][:, 0] == [1, *[0] * 8]).all(axis=1)
        assert (waits.reshape(2, 2).sum(axis=1) == 1).all()
        assert to_move is None or (waits == to_move).all(), "after a move it is the other's turn"
        num_marks = rows.arrays["obs"][:, 0].sum(axis=(1, 2, 3))
        result = env.step(draw(rows), rows)
        if result.terminated.any():
            break
        to_move = ~waits
        assert (rows.arrays["obs"][:, 0].sum(axis=(1, 2, 3)) == num_marks + 1).all(), (
            "of one player of a copy"
        )
    assert result.terminated.any()


def test_a_player_is_active_when_the_turn_of_the_opponent_ends_the_game():
    _, results = play(make("TicTacToe-v1"), 40)
    for before, result in itertools.pairwise(results):
        ended = np.flatnonzero(result.terminated)
        assert before.active is None or before.active[ended].all()
    assert {-1.0, 1.0} <= {float(reward) for result in results for reward in result.rewards}


def test_a_mask_of_combinations_is_an_observation_like_others():
    space = make("Minesweeper-v0").single_observation_space
    assert space[JOINT_MASK].shape == (10, 10) and ACTION_MASK not in space.spaces


def test_numbers_without_bounds_have_none():
    assert np.isinf(make("LunarLander-v3").single_observation_space.low).all()
    pressed = make("D1Basic-v1", env_kwargs={"use_combined_action": False})
    assert np.isinf(pressed.single_action_space.high).all()


def test_an_action_of_a_doom_id_is_a_combination_of_buttons_unless_the_user_says_otherwise(caplog):
    assert make("D3Battle-v1").single_action_space == gym.spaces.Discrete(108)
    assert "use_combined_action" not in caplog.text
    for _ in range(2):
        make("D4Battle2-v1", env_kwargs={"use_combined_action": False})
    assert caplog.text.count("envpool_D4Battle2-v1 with use_combined_action=false: ") == 1


def test_success_at_any_time_in_an_episode_is_a_statistic_of_it():
    shapes = {"info:success": SimpleNamespace(shape=())}
    infos = EnvPoolInfos(shapes, num_copies=2, num_players=1)
    no = np.zeros(2, bool)
    infos.add({"success": np.array([1.0, 0.0])}, no, no)
    infos.add({"success": np.array([0.0, 0.0])}, no, no)
    end = {"success": np.array([0.0, 0.0])}
    infos.add(end, ~no, no)
    assert end["episode_extra_stats"]["success"].tolist() == [1.0, 0.0]
    infos.add(end, ~no, no)
    assert end["episode_extra_stats"]["success"].tolist() == [0.0, 0.0], "of the next episode"


def test_the_score_of_a_game_counts_all_lives_before_clipping():
    shapes = dict.fromkeys(("info:lives", "info:terminated", "info:reward"), SimpleNamespace(shape=(-1,)))
    infos = EnvPoolInfos(shapes, num_copies=2, num_players=1)
    no = np.zeros(2, bool)
    yes = ~no
    lives = np.array([3, 3])
    infos.add({"reward": np.array([4.0, 1.0]), "terminated": np.array([0, 0]), "lives": lives}, no, no)
    life = {"reward": np.array([3.0, 2.0]), "terminated": np.array([0, 1]), "lives": np.array([2, 0])}
    infos.add(life, yes, no)
    assert life[EPISODE_CONTINUES].tolist() == [True, False] and life["true_objective"][1] == 3.0
    game = {"reward": np.array([10.0, 5.0]), "terminated": np.array([1, 0]), "lives": np.array([0, 3])}
    infos.add(game, np.array([True, False]), np.array([False, True]))
    assert not game[EPISODE_CONTINUES].any(), "a game that is cut off is over"
    assert game["true_objective"].tolist() == [17.0, 5.0]


def test_a_game_is_over_unseen_where_the_last_life_is_followed_by_as_many_as_a_game_begins_with():
    shapes = dict.fromkeys(("info:lives", "info:terminated", "info:reward"), SimpleNamespace(shape=(-1,)))
    infos = EnvPoolInfos(shapes, num_copies=4, num_players=1)
    infos.reset({"lives": np.full(4, 3)})
    none, no = np.zeros(4, int), np.zeros(4, bool)

    def add(lives, reward, terminated):
        info = {"lives": np.array(lives), "reward": np.full(4, reward), "terminated": none}
        return infos.add(info, terminated, no), info

    # The first copy only: the second one earns a life, the third one keeps its two, the fourth lost none.
    add([1, 1, 2, 1], 5.0, np.array([True, True, True, False]))
    terminated, info = add([3, 2, 2, 3], 0.0, no)
    assert terminated.tolist() == [True, False, False, False]
    assert info["true_objective"][0] == 5.0 and not info[EPISODE_CONTINUES].any()
    _, info = add([2, 1, 1, 2], 1.0, ~no)
    assert info["true_objective"].tolist() == [1.0, 6.0, 6.0, 6.0] and info[EPISODE_CONTINUES].all()


OF_FAMILY = {
    "envpool_Pong-v5": {"frame_skip": "env_frameskip"},
    "minigrid_Empty-5x5-v0": {"agent_view_size": "minigrid_view_size"},
    "procgen_coinrun": {key: f"procgen_{key}" for key in ("distribution_mode", "num_levels", "start_level")},
}


@pytest.mark.parametrize(
    "env", ["envpool_CartPole-v1", "mujoco_ant", "football_academy_empty_goal_close", *OF_FAMILY]
)
def test_an_argument_that_a_flag_sets_is_refused_in_every_family_and_the_flag_is_named(env):
    family = resolve_family(env)
    options = {"num_envs", "num_threads", "seed", "batch_size", "thread_affinity_offset"}
    assert options <= FLAG_OF_OPTION.keys()
    for option, flag in {**FLAG_OF_OPTION, **OF_FAMILY.get(env, {})}.items():
        config = config_of(env, env_kwargs={option: 8})
        assert flag in config.flat()
        with pytest.raises(ConfigError, match=f"use --{flag}=8 for {option}"):
            family.make(config.namespace(), EnvConfig(0, 0, 0), None)


@pytest.mark.parametrize("option", ["task_id", "cfg", "env_config", "stack_numm"])
def test_an_argument_that_is_unknown_or_named_as_a_parameter_of_make_envpool_is_refused(option):
    with pytest.raises(ConfigError, match=option):
        make("CartPole-v1", env_kwargs={option: 1})


@pytest.mark.parametrize(
    ("name", "defaults_of_family"),
    [
        ("Pong-v5", atari_defaults),
        ("D3Battle-v1", atari_defaults),
        ("HalfCheetah-v5", mujoco_defaults),
        ("BigfishEasy-v0", procgen_defaults),
    ],
)
def test_an_id_has_the_defaults_of_the_most_similar_family(name, defaults_of_family):
    config = config_of(f"envpool_{name}")
    others = ("env_engine", "env_framestack")
    expected = {
        key: value for key, value in defaults_of_family(f"envpool_{name}").items() if key not in others
    }
    assert expected.items() <= config.flat().items() and config.env.env_framestack == 1
    assert not config.open_flags, "the family knows its envs"


def test_an_id_of_no_suite_has_the_defaults_of_its_observation():
    config = config_of("envpool_CartPole-v1")
    assert "ppo_epochs" in config.open_flags


def test_threads_are_divided_among_the_workers(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(envpool_engine, "num_usable_cores", lambda: 16)
    monkeypatch.setattr(envpool_engine, "cpu_limit", lambda: math.inf)

    def threads(**flags):
        return envpool_engine._threads_of_process(cfg_of("envpool_CartPole-v1", **flags))

    assert [threads(num_workers=num_workers) for num_workers in (1, 3, 16, 40)] == [16, 5, 1, 1]
    assert threads(num_workers=4, inline_samplers=2) == 8
    assert threads(num_workers=4, serial_mode=True) == 16
    monkeypatch.setattr(envpool_engine, "num_usable_cores", lambda: 2)
    assert threads(num_workers=3) == 2, "a worker that is pinned to two cores"
    monkeypatch.setattr(envpool_engine, "num_usable_cores", lambda: 8)
    monkeypatch.setattr(envpool_engine, "cpu_limit", lambda: 8.0)
    assert threads(num_workers=4) == 2, "a container that may use 8 of the 16 cores"
