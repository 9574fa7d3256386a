"""Batched simulators of other packages, for a few steps on a CPU.

They are in no extra: their versions of NumPy and MuJoCo are not those of the other tests. BATCHED.md
has the commands that install and run them.
"""

import numpy as np
import pytest

from examples.functional_envs import Jumanji, Navix
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.random_actions import RandomActions

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


@pytest.mark.parametrize("is_torch", [False, True])
def test_brax(is_torch):
    pytest.importorskip("brax")
    from brax import envs
    from brax.envs.wrappers.gym import VectorGymWrapper
    from brax.envs.wrappers.torch import TorchWrapper

    made = envs.create("inverted_pendulum", episode_length=LENGTH, batch_size=NUM_COPIES, backend="spring")
    own = VectorGymWrapper(made)
    env, seen, results = played(TorchWrapper(own) if is_torch else own)
    (kind,) = env.kinds.spaces
    assert kind.observation["obs"].shape == (4,) and kind.action.low == -3
    assert_cut_after_each_episode(results)
    for end in (LENGTH, 2 * LENGTH):
        np.testing.assert_array_equal(seen[end]["obs"], seen[0]["obs"], "Brax begins with the same state")
        own_sums = [results[end - 1].end_infos[i]["episode_metrics"]["sum_reward"] for i in range(NUM_COPIES)]
        ours = sum(result.rewards for result in results[end - LENGTH : end])
        np.testing.assert_allclose(ours, own_sums, rtol=1e-6)


def test_mujoco_playground():
    pytest.importorskip("mujoco_playground")
    from mujoco_playground import registry
    from mujoco_playground._src.wrapper_torch import RSLRLBraxWrapper

    cartpole = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    own = RSLRLBraxWrapper(cartpole, NUM_COPIES, 0, LENGTH, 1)
    num_resets = []
    reset = own.reset
    own.reset = lambda: (num_resets.append(1), reset())[1]
    env, seen, results = played(own)
    assert len(num_resets) == 1
    (kind,) = env.kinds.spaces
    assert kind.observation["state"].shape == (5,) and kind.action.shape == (1,)
    assert_cut_after_each_episode(results)
    assert "reward/upright" in results[LENGTH - 1].end_infos[0]["episode_extra_stats"]
    assert not np.array_equal(seen[1]["state"], seen[0]["state"])


def test_mjlab():
    pytest.importorskip("mjlab")
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.rl import RslRlVecEnvWrapper
    from mjlab.tasks.registry import list_tasks, load_env_cfg

    task = next(name for name in list_tasks() if "Cartpole-Balance" in name)
    for wrap in (lambda own: own, RslRlVecEnvWrapper):
        cfg = load_env_cfg(task)
        cfg.scene.num_envs = NUM_COPIES
        cfg.episode_length_s = LENGTH * cfg.sim.mujoco.timestep * cfg.decimation
        env, _, results = played(wrap(ManagerBasedRlEnv(cfg, device="cpu")))
        (kind,) = env.kinds.spaces
        assert set(kind.observation) == {"actor", "critic"} and not kind.action.is_bounded()
        assert_cut_after_each_episode(results)
        assert any(
            key.startswith("Episode_Reward/") for key in results[-1].end_infos[0]["episode_extra_stats"]
        )


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
    pytest.importorskip("jumanji")
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
    pytest.importorskip("navix")
    limit = LENGTH - 1  # no way to the goal is as short
    env, _, results = played(Navix("Navix-Empty-5x5-v0", NUM_COPIES, max_steps=limit), num_steps=2 * LENGTH)
    (kind,) = env.kinds.spaces
    assert kind.observation["obs"].dtype == np.uint8 and kind.action.n > 2
    for number, result in enumerate(results, start=1):
        is_last = number % LENGTH == limit
        assert result.truncated.tolist() == [is_last] * NUM_COPIES and not result.terminated.any()
        assert (result.active is not None) == is_last and not np.any(result.active), "the next only resets"
