"""Gymnasium's envs and vector envs, beside `gymnasium.make` and `gymnasium.make_vec`."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from sample_factory.envs.adapters.adapt import adapt
from tests.conformance.ledger import Plain, Tally, assert_equal
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
        observation, rewards, terminated, truncated, info = env.step(row)
        plain.add(rewards, terminated, truncated & ~terminated, ~waits)
        plain.see(obs=observation)
        ended = terminated | truncated
        for agent in np.flatnonzero(ended).tolist():
            own = info.get("final_info", info)
            numbers = {key: own[key][agent] for key in own if not key.startswith("_") and key != "final_obs"}
            plain.infos[len(plain.rewards) - 1, agent] = numbers
        waits = ended & waits_for_reset
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
        observation, reward, terminated, truncated, info = env.step(action)
        plain.add(reward, terminated, truncated and not terminated)
        if terminated or truncated:
            plain.infos[len(plain.rewards) - 1, 0] = info
            observation, _ = env.reset()
        plain.see(obs=np.asarray(observation)[None])
    if env_id == "FrozenLake-v1":
        plain.seen.clear()  # encoded as an index
    count("gymnasium", assert_equal(trained, plain))


@pytest.mark.parametrize("make", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("env_id", [CARTPOLE, "FrozenLake-v1"])
def test_vector_envs(make, mode, env_id, count):
    def envs():
        return make([lambda: gym.make(env_id)] * 4, autoreset_mode=mode)

    trained = train_on(adapt(envs()), 300)
    plain = played(envs(), trained.actions[:, :, 0].astype(int), mode == AutoresetMode.NEXT_STEP)
    num_mended = 0
    if env_id == "FrozenLake-v1":
        plain.seen.clear()  # encoded as an index
        # A step on ice has three ways to go. Gymnasium gives the array of all copies the type of the first
        # copy's number, so that 1/3 becomes 0 where the first copy has been reset, which has probability 1.
        num_mended = sum(info["prob"] == 0 for info in plain.infos.values())
        assert bool(num_mended) == (mode == AutoresetMode.NEXT_STEP)
        plain.infos = {key: {"prob": 1 / 3} for key in plain.infos}
    count("gymnasium", assert_equal(trained, plain)._replace(differences=int(num_mended)))


def test_own_vector_env_of_cartpole(count):
    trained = train_on(adapted_by_name(f"gym_{CARTPOLE}", vector_env_copies=8), 300)
    env = gym.make_vec(CARTPOLE, 8, vectorization_mode="vector_entry_point")
    plain = played(env, trained.actions[:, :, 0].astype(int), True)
    count("gymnasium", assert_equal(trained, plain))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_recorded_statistics(mode, count):
    def envs():
        return RecordEpisodeStatistics(SyncVectorEnv([lambda: gym.make(CARTPOLE)] * 4, autoreset_mode=mode))

    trained = train_on(adapt(envs()), 300)
    env, returns = envs(), {}
    env.reset(seed=1)
    for step, row in enumerate(trained.actions[:, :, 0].astype(int)):
        *_, terminated, truncated, info = env.step(row)
        for agent in np.flatnonzero(terminated | truncated).tolist():
            returns[step, agent] = info["episode"]["r"][agent]
    assert {(e.step, e.agent): e.objective for e in trained.episodes} == returns
    count("gymnasium", Tally("", len(returns), trained.acted.sum().item()))
