"""`mujoco_<name>`: names, engines and defaults."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("envpool")
pytest.importorskip("mujoco")

from sample_factory.families.envpool_vector_env import EnvPoolVectorEnv
from sample_factory.families.mujoco_family import IDS
from tests.envs.made import cfg_of, make_env


def make(name, engine="envpool", copies=2, **flags):
    return make_env(name, env_engine=engine, vector_env_copies=copies, **flags)


@pytest.mark.parametrize("name", IDS)
def test_both_engines_have_the_same_task(name):
    pool = make(name)
    env = make(name, "gymnasium", copies=1)
    assert isinstance(pool, EnvPoolVectorEnv)
    assert env.spec.id == IDS[name]
    assert pool.single_observation_space.shape == env.observation_space.shape
    np.testing.assert_allclose(pool.single_action_space.low, env.action_space.low)
    np.testing.assert_allclose(pool.single_action_space.high, env.action_space.high)
    assert pool.max_episode_steps() == env.spec.max_episode_steps
    env.close()


@pytest.mark.parametrize("engine", ["envpool", "gymnasium"])
def test_pictures_come_from_a_single_env_of_gymnasium(engine):
    env = make("mujoco_hopper", engine, copies=3, render_mode="rgb_array")
    assert isinstance(env, gym.Env)
    assert env.render_mode == "rgb_array"
    env.close()


@pytest.mark.parametrize("engine", ["envpool", "gymnasium"])
def test_arguments_reach_either_engine(engine):
    with_position = '{"exclude_current_positions_from_observation": false}'
    env = make("mujoco_halfcheetah", engine, env_kwargs=with_position)
    assert env.single_observation_space.shape == (18,)
    env.close()


def test_version_2_s_flag_for_the_copies_is_accepted():
    assert cfg_of("mujoco_ant", env_agents=4).vector_env_copies == 4
