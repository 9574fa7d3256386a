"""What the adapter makes of simulators that test_simulators.py does not compare, and what is refused."""

import argparse

import numpy as np
import pytest

import sample_factory
from examples.functional_envs import Craftax
from sample_factory import register_env
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.random_actions import RandomActions
from tests.evaluation.conftest import save_untrained

LENGTH = 5  # of each episode, by a time limit
NUM_COPIES = 3


def played(own, num_steps=2 * LENGTH):
    """Steps a simulator with random actions; returns its adapter, observations and results by step."""
    env = adapt(own)
    rows = ObservationRows.allocate(env.kinds)
    draw = RandomActions(env.kinds, seed=0)
    env.reset(1, rows)
    seen = [{key: array[:, 0].copy() for key, array in rows.arrays.items()}]
    results = []
    for _ in range(num_steps):
        results.append(env.step(draw(rows), rows))
        seen.append({key: array[:, 0].copy() for key, array in rows.arrays.items()})
    env.close()
    return env, seen, results


def assert_cut_after_each_episode(results):
    for number, result in enumerate(results, start=1):
        assert result.truncated.tolist() == [number % LENGTH == 0] * NUM_COPIES
        assert not result.terminated.any() and np.isfinite(result.rewards).all()
        assert result.active is None, "it resets in the same step"
        assert set(result.end_infos) == (set(range(NUM_COPIES)) if number % LENGTH == 0 else set())


def pendulum(envs, num_envs, length=LENGTH):
    return envs.create("inverted_pendulum", episode_length=length, batch_size=num_envs, backend="spring")


def test_deterministic_episodes_in_brax_count_once(tmp_path):
    from brax import envs
    from brax.envs.wrappers.gym import VectorGymWrapper

    def make_env(num_envs=NUM_COPIES):
        return VectorGymWrapper(pendulum(envs, num_envs, length=100))  # it falls earlier

    register_env("pendulum", make_env)
    save_untrained(tmp_path, "pendulum", "--encoder_mlp_layers=8", "--device=cpu")
    flags = {"train_dir": tmp_path, "device": "cpu", "seed": 1, "serial_mode": True}
    flags |= {"num_workers": 1, "num_envs_per_worker": 1, "worker_num_splits": 1}
    evaluation = sample_factory.evaluate("tiny", num_episodes=30, deterministic=True, **flags)
    assert [episode.agent for episode in evaluation.episodes] == list(range(NUM_COPIES))
    assert len({episode.length for episode in evaluation.episodes}) > 1, "the first states differ"
    assert evaluation.num_repeats == 30 - NUM_COPIES and not evaluation.is_partial


def test_mujoco_playground():
    from mujoco_playground import registry
    from mujoco_playground._src.wrapper_torch import RSLRLBraxWrapper

    cartpole = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    own = RSLRLBraxWrapper(cartpole, NUM_COPIES, 0, LENGTH, 1)
    env, seen, results = played(own)
    assert env_info(env, argparse.Namespace(env_frameskip=None)).repeats_first_states
    (kind,) = env.kinds.spaces
    assert kind.observation["state"].shape == (5,) and kind.action.shape == (1,)
    assert_cut_after_each_episode(results)
    assert "reward/upright" in results[LENGTH - 1].end_infos[0]["episode_extra_stats"]
    assert not np.array_equal(seen[1]["state"], seen[0]["state"])


def results_of(own):
    """Makes a simulator keep what its steps return, in a list that is still empty."""
    returned = []
    step = own.step

    def step_and_keep(taken):
        returned.append(step(taken))
        return returned[-1]

    own.step = step_and_keep
    return returned


def test_achievements_of_craftax_are_statistics():
    own = Craftax("Craftax-Classic-Symbolic-v1", 16)
    returned = results_of(own)
    _, _, results = played(own, num_steps=200)
    num_ended = 0
    for values, result in zip(returned, results):
        assert result.terminated.tolist() == np.asarray(values[2]).tolist() and not result.truncated.any()
        for env, info in result.end_infos.items():
            own_stats = {
                key: value[env] for key, value in values[3].items() if key.startswith("Achievements/")
            }
            stats = {key: pytest.approx(float(value)) for key, value in own_stats.items()}
            assert len(stats) == 22 and info["episode_extra_stats"] == stats
            num_ended += 1
    assert num_ended >= 5 and any(
        max(info["episode_extra_stats"].values()) for r in results for info in r.end_infos.values()
    )


def functional_envs():
    import gymnax
    import jumanji
    import navix
    from brax import envs
    from craftax.craftax_env import make_craftax_env_from_name
    from mujoco_playground import registry

    return [
        gymnax.make("CartPole-v1")[0],
        jumanji.make("Snake-v1"),
        navix.make("Navix-Empty-5x5-v0"),
        make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=True),
        envs.get_environment("inverted_pendulum", backend="spring"),
        pendulum(envs, NUM_COPIES),
        registry.load("CartpoleBalance", config_overrides={"impl": "jax"}),
    ]


def test_functional_envs_are_refused_by_a_line_that_names_the_page():
    for functional in functional_envs():
        with pytest.raises(TypeError, match="is a function of a state; .* see .*envs/BATCHED.md$"):
            adapt(functional)
