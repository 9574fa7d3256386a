"""Compares Gymnasium's envs in JAX, played through the product, with `gymnasium.make`."""

import gymnasium as gym
import numpy as np
import pytest

from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

NUM_COPIES = 4


@pytest.mark.parametrize(
    ("env_id", "num_steps"), [("phys2d/CartPole-v1", 600), ("tabular/Blackjack-v0", 200)]
)
def test_copies_are_single_envs(env_id, num_steps, count):
    """Gymnasium's own vector envs of these ids are not used: a step that resets one copy does not move the
    others. The product makes copies of single envs."""
    trained = train_on(adapted_by_name(f"gym_{env_id}", vector_env_copies=NUM_COPIES), num_steps)
    env = gym.vector.SyncVectorEnv([lambda: gym.make(env_id)] * NUM_COPIES, autoreset_mode="SameStep")
    plain = Plain()
    env.reset(seed=1)
    for row in trained.actions[:, :, 0].astype(int):
        _, rewards, terminated, truncated, _ = env.step(row)
        plain.add(rewards, terminated, truncated & ~terminated)
    env.close()
    tally = assert_equal(trained, plain)
    assert tally.episodes >= 100
    count("gymnasium (JAX)", tally)


def test_single_envs(count):
    trained = train_on(adapted_by_name("gym_phys2d/CartPole-v1"), 2_500)
    env = gym.make("phys2d/CartPole-v1")
    plain = Plain()
    observation, _ = env.reset(seed=1)
    plain.see(obs=np.asarray(observation)[None])
    for row in trained.actions[:, 0]:
        observation, reward, terminated, truncated, _ = env.step(int(row[0]))
        plain.add(reward, bool(terminated), bool(truncated) and not terminated)
        if terminated or truncated:
            observation, _ = env.reset()
        plain.see(obs=np.asarray(observation)[None])
    count("gymnasium (JAX)", assert_equal(trained, plain))
