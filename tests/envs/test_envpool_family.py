import itertools
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("envpool")

from sample_factory.config.flags import ConfigError
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import max_episode_steps
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.envs.envpool_family import EnvPoolFlags, make_envpool, make_envpool_env
from sample_factory.envs.protocol import EnvConfig, ObservationRows
from sample_factory.envs.random_actions import RandomActions


def cfg(copies=3, **flags):
    others = {"num_workers": 2, "env_kwargs": "{}", "env_frameskip": None, "vector_env_copies": copies}
    return SimpleNamespace(**{**vars(EnvPoolFlags()), **others, **flags})


def make(task_id, copies=3, **options):
    return make_envpool(task_id, cfg(copies), EnvConfig(0, 0, 0), **options)


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


def test_an_unknown_id_is_an_error_with_the_nearest():
    with pytest.raises(UnknownEnvError, match="did you mean envpool_CartPole-v1?"):
        make("Cartpole-v1")


def test_an_unknown_argument_is_an_error_that_names_it():
    config = cfg(env_kwargs='{"stack_numm": 2}')
    with pytest.raises(ConfigError, match="stack_numm"):
        make_envpool_env("envpool_Pong-v5", config, EnvConfig(0, 0, 0))


def test_arguments_reach_envpool():
    config = cfg(env_kwargs='{"stack_num": 2}')
    env = make_envpool_env("envpool_Pong-v5", config, EnvConfig(0, 0, 0))
    assert env.single_observation_space.shape == (2, 84, 84)
