"""`gym_<id>`: single envs, and copies that are stepped in one call."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.gym_family import GymFlags, make_gym_env
from sample_factory.envs.protocol import EnvConfig, ObservationRows

NUM_COPIES = 3


def make(name: str, copies: int, frameskip: int | None = None):
    cfg = SimpleNamespace(vector_env_copies=copies, env_frameskip=frameskip)
    return make_gym_env(name, cfg, EnvConfig(0, 0, 0))


def test_the_family_has_its_flags():
    assert resolve_family("gym_CartPole-v1").flags is GymFlags
    assert GymFlags().vector_env_copies == 1


def test_one_copy_is_a_plain_env():
    assert isinstance(make("gym_CartPole-v1", 1), gym.Env)


def test_copies_use_the_env_s_own_vectorised_implementation_where_there_is_one():
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    assert isinstance(make("gym_CartPole-v1", NUM_COPIES).unwrapped, CartPoleVectorEnv)
    assert isinstance(make("gym_Pendulum-v1", NUM_COPIES), gym.vector.SyncVectorEnv)


@pytest.mark.parametrize("name", ["gym_CartPole-v1", "gym_Pendulum-v1", "gym_Acrobot-v1"])
def test_every_copy_is_an_agent_with_episodes_of_its_own(name):
    env = adapt(make(name, NUM_COPIES))
    assert env.num_agents == NUM_COPIES
    shape = env.kinds.spaces[0].observation["obs"].shape
    observations = {"obs": np.zeros((NUM_COPIES, 2, *shape), np.float32)}
    rows = ObservationRows(observations, np.arange(NUM_COPIES), 0)
    env.reset(7, rows)
    first = observations["obs"][:, 0].copy()
    assert len(np.unique(first, axis=0)) == NUM_COPIES
    result = env.step(np.zeros((NUM_COPIES, 1), np.float32), ObservationRows(observations, rows.buffers, 1))
    assert result.rewards.shape == (NUM_COPIES,)
    assert not np.array_equal(observations["obs"][:, 1], first)
    env.close()


def test_copies_of_an_env_whose_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "registers_cart.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Cart-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make("gym_registers_cart:Cart-v0", NUM_COPIES).num_envs == NUM_COPIES


def test_copies_with_a_frameskip_are_refused():
    with pytest.raises(ValueError, match="--vector_env_copies=1"):
        make("gym_CartPole-v1", NUM_COPIES, frameskip=4)
