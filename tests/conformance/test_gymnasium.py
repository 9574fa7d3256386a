"""Gymnasium's envs and vector envs, beside `gymnasium.make` and `gymnasium.make_vec`."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from sample_factory.envs.adapters.adapt import adapt
from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

CARTPOLE = "CartPole-v1"


def played(env, actions, waits_for_reset):
    """Plays actions, [T, A], in a vector env of Gymnasium.

    waits_for_reset: NEXT_STEP: after an end, a step only resets, and the agent does not act.
    """
    plain = Plain()
    observation, _ = env.reset(seed=1)
    plain.see(obs=observation)
    waits = np.zeros(env.num_envs, bool)
    for row in actions:
        observation, rewards, terminated, truncated, _ = env.step(row)
        plain.add(rewards, terminated, truncated & ~terminated, ~waits)
        plain.see(obs=observation)
        waits = (terminated | truncated) & waits_for_reset
    env.close()
    return plain


@pytest.mark.parametrize("env_id", [CARTPOLE, "Acrobot-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_single_envs(env_id, count):
    num_steps = 2_500
    trained = train_on(adapted_by_name(f"gym_{env_id}"), num_steps)
    env = gym.make(env_id)
    low = getattr(env.action_space, "low", None)
    plain = Plain()
    observation, _ = env.reset(seed=1)
    plain.see(obs=np.asarray(observation)[None])
    for row in trained.actions[:, 0]:
        action = int(row[0]) if low is None else np.clip(row, low, env.action_space.high)
        observation, reward, terminated, truncated, _ = env.step(action)
        plain.add(reward, terminated, truncated and not terminated)
        if terminated or truncated:
            observation, _ = env.reset()
        plain.see(obs=np.asarray(observation)[None])
    if env_id == "FrozenLake-v1":
        plain.seen.clear()  # encoded as an index
    count("gymnasium", assert_equal(trained, plain))


@pytest.mark.parametrize("make", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_vector_envs(make, mode, count):
    def envs():
        return make([lambda: gym.make(CARTPOLE)] * 4, autoreset_mode=mode)

    trained = train_on(adapt(envs()), 300)
    plain = played(envs(), trained.actions[:, :, 0].astype(int), mode == AutoresetMode.NEXT_STEP)
    count("gymnasium", assert_equal(trained, plain))


def test_own_vector_env_of_cartpole(count):
    trained = train_on(adapted_by_name(f"gym_{CARTPOLE}", vector_env_copies=8), 300)
    env = gym.make_vec(CARTPOLE, 8, vectorization_mode="vector_entry_point")
    plain = played(env, trained.actions[:, :, 0].astype(int), True)
    count("gymnasium", assert_equal(trained, plain))
