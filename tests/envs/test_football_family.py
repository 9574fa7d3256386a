"""Football in EnvPool: names, rewards, scores."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("envpool")

import envpool

from sample_factory.config.flags import ConfigError
from sample_factory.envs import envpool_family
from sample_factory.envs.abilities import StepsInBackground
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.end_infos import extra_stats, true_objective
from sample_factory.envs.env_registry import UnknownEnvError, resolve_family
from sample_factory.envs.football_family import FOOTBALL_ENVS, FootballFlags, football_defaults
from sample_factory.envs.protocol import EnvConfig, ObservationRows

RIGHT, SHOT = 5, 12


def make(name="football_academy_empty_goal_close", copies=2, render_mode=None, **flags):
    cfg = {
        **vars(FootballFlags()),
        "num_workers": 1,
        "serial_mode": False,
        "inline_samplers": 0,
        "env_frameskip": None,
        "vector_env_copies": copies,
    }
    family = resolve_family(name)
    return family.make(SimpleNamespace(**{**cfg, **flags}), EnvConfig(0, 0, 0), render_mode)


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
    assert extra_stats(info).numbers == {"goals": 1, "goals_conceded": 0}


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


def test_a_worker_can_do_other_things_while_envpool_steps():
    env = make()
    assert isinstance(env, StepsInBackground)
    env.reset(seed=0)
    env.send(np.zeros(2, np.int32))
    *_, infos = env.receive()
    np.testing.assert_equal(infos["elapsed_step"], [1, 1])
    np.testing.assert_equal(infos["true_objective"], [0, 0])
    env.close()


def test_without_a_render_mode_there_is_no_picture():
    env = make()
    env.reset(seed=0)
    assert env.render() is None
    env.close()


def test_a_mistyped_scenario_gets_the_nearest_name():
    with pytest.raises(UnknownEnvError, match="did you mean football_academy_corner?"):
        resolve_family("football_academy_corners")


@pytest.mark.parametrize("name", ["football_5_vs_5", "procgen_starpilot"])
def test_without_envpool_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setattr(envpool_family, "is_installed", lambda: False)
    with pytest.raises(ImportError, match=r"pip install -e '.\[envpool\]'"):
        resolve_family(name)


def test_frameskip_is_refused_with_the_flag_to_use_instead():
    with pytest.raises(ConfigError, match="physics_steps_per_frame"):
        make(env_frameskip=4)


def test_an_iteration_of_the_defaults_has_equally_many_rollouts_of_each_agent():
    flags = {**vars(FootballFlags()), **football_defaults("football_5_vs_5")}
    num_agents = flags["num_workers"] * flags["num_envs_per_worker"] * flags["vector_env_copies"]
    assert flags["batch_size"] * flags["num_batches_per_iteration"] == num_agents * flags["rollout"]
