"""What the adapter makes of the simulators of other packages, in a few steps each."""

import argparse

import numpy as np
import pytest

import sample_factory
from examples.functional_envs import Craftax, Jumanji, Navix
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


@pytest.mark.parametrize("is_torch", [False, True])
def test_brax(is_torch):
    from brax import envs
    from brax.envs.wrappers.gym import VectorGymWrapper
    from brax.envs.wrappers.torch import TorchWrapper

    own = VectorGymWrapper(pendulum(envs, NUM_COPIES))
    env, seen, results = played(TorchWrapper(own) if is_torch else own)
    (kind,) = env.kinds.spaces
    assert kind.observation["obs"].shape == (4,) and kind.action.low == -3
    assert_cut_after_each_episode(results)
    for end in (LENGTH, 2 * LENGTH):
        np.testing.assert_array_equal(seen[end]["obs"], seen[0]["obs"], "Brax begins with the same state")
        infos = results[end - 1].end_infos
        own_sums = [infos[i]["episode_extra_stats"]["sum_reward"] for i in range(NUM_COPIES)]
        ours = sum(result.rewards for result in results[end - LENGTH : end])
        np.testing.assert_allclose(ours, own_sums, rtol=1e-6)


def test_mujoco_playground():
    from mujoco_playground import registry
    from mujoco_playground._src.wrapper_torch import RSLRLBraxWrapper

    cartpole = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    own = RSLRLBraxWrapper(cartpole, NUM_COPIES, 0, LENGTH, 1)
    num_resets = []
    reset = own.reset
    own.reset = lambda: (num_resets.append(1), reset())[1]
    env, seen, results = played(own)
    assert env_info(env, argparse.Namespace(env_frameskip=None)).repeats_first_states
    assert len(num_resets) == 1
    (kind,) = env.kinds.spaces
    assert kind.observation["state"].shape == (5,) and kind.action.shape == (1,)
    assert_cut_after_each_episode(results)
    assert "reward/upright" in results[LENGTH - 1].end_infos[0]["episode_extra_stats"]
    assert not np.array_equal(seen[1]["state"], seen[0]["state"])


def carts(**terminations):
    """Returns the config of mjlab's cart whose episodes a time limit cuts after LENGTH steps."""
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = NUM_COPIES
    cfg.episode_length_s = LENGTH * cfg.sim.mujoco.timestep * cfg.decimation
    cfg.terminations.update(terminations)
    return cfg


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("falls", [False, True])
def test_mjlab(is_wrapped, falls):
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.managers.termination_manager import TerminationTermCfg
    from mjlab.rl import RslRlVecEnvWrapper

    fall = {"fall": TerminationTermCfg(func=lambda env: env.episode_length_buf >= LENGTH)} if falls else {}
    own = ManagerBasedRlEnv(carts(**fall), device="cpu")
    env, _, results = played(RslRlVecEnvWrapper(own) if is_wrapped else own)
    (kind,) = env.kinds.spaces
    assert set(kind.observation) == {"actor", "critic"} and not kind.action.is_bounded()
    assert_cut_after_each_episode(results)  # also if it falls at the limit, as rsl_rl counts it
    assert any(key.startswith("Episode_Reward/") for key in results[-1].end_infos[0]["episode_extra_stats"])


def recorded(own):
    """Makes a simulator keep the actions and the results of its steps; returns both lists, still empty."""
    actions, returned = [], []
    step = own.step

    def step_and_keep(taken):
        actions.append(taken)
        returned.append(step(taken))
        return returned[-1]

    own.step = step_and_keep
    return actions, returned


def test_jumanji():
    own = Jumanji("Snake-v1", NUM_COPIES, num_rows=6, num_cols=6, time_limit=LENGTH)
    actions, returned = recorded(own)
    env, seen, results = played(own)
    (kind,) = env.kinds.spaces
    assert {key: box.shape for key, box in kind.observation.items()} == {
        "grid": (6, 6, 5),
        "step_count": (),
        "action_mask": (4,),
    }
    steps = np.zeros(NUM_COPIES)
    for before, taken, values, result, after in zip(seen, actions, returned, results, seen[1:]):
        assert before["action_mask"][np.arange(NUM_COPIES), taken].all()
        done = np.asarray(values[2])
        assert result.terminated.tolist() == done.tolist() and not result.truncated.any()
        assert result.rewards.tolist() == np.asarray(values[1]).tolist()
        steps = np.where(done, 0, steps + 1)
        assert after["step_count"].ravel().tolist() == steps.tolist()
    assert results[LENGTH - 1].terminated.all()


def test_navix():
    limit = LENGTH - 1  # no way to the goal is as short
    env, _, results = played(Navix("Navix-Empty-5x5-v0", NUM_COPIES, max_steps=limit), num_steps=2 * LENGTH)
    (kind,) = env.kinds.spaces
    assert kind.observation["obs"].dtype == np.uint8 and kind.action.n > 2
    for number, result in enumerate(results, start=1):
        is_last = number % LENGTH == limit
        assert result.truncated.tolist() == [is_last] * NUM_COPIES and not result.terminated.any()
        assert (result.active is not None) == is_last and not np.any(result.active), "the next only resets"


def test_gymnax_by_its_own_vector_env():
    import gymnax
    from gymnax.wrappers import GymnaxToVectorGymWrapper

    cart, params = gymnax.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=LENGTH)
    _, _, results = played(GymnaxToVectorGymWrapper(cart, NUM_COPIES, params))
    for number, result in enumerate(results, start=1):
        assert result.truncated.tolist() == [number % LENGTH == 0] * NUM_COPIES
        assert not result.terminated.any() and (result.rewards == 1).all() and result.active is None


def test_achievements_of_craftax_are_statistics():
    own = Craftax("Craftax-Classic-Symbolic-v1", 16)
    _, returned = recorded(own)
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
