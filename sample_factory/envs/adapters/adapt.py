"""Chooses the adapter that turns a user's env into a MultiAgentEnv."""

import sys
from typing import Any

import gymnasium as gym

from sample_factory.envs.adapters.adapter import Adapter
from sample_factory.envs.adapters.list_style import ListAdapter, is_multiagent
from sample_factory.envs.adapters.old_gym import is_old_env
from sample_factory.envs.adapters.pettingzoo import ParallelEnvAdapter, Turns
from sample_factory.envs.adapters.simulator import SimulatorVectorEnv, is_simulator
from sample_factory.envs.adapters.single_agent import SingleAgentAdapter
from sample_factory.envs.adapters.vector_env import VectorEnvAdapter
from sample_factory.envs.conventions import AUTO, UNLESS_DEAD, convention_of
from sample_factory.envs.protocol import EnvAround, MultiAgentEnv


def adapt(env: Any, both_ends: str = AUTO) -> MultiAgentEnv:
    """Wraps an env in the adapter for its kind (Gymnasium, PettingZoo, simulator, ...), which makes it a
    MultiAgentEnv.

    both_ends: value of --env_both_ends: how an end counts that is both terminated and truncated, see
        EpisodeEnds.

    Raises TypeError for an object that is no env.
    """
    if convention_of(env).both_ends == UNLESS_DEAD and both_ends == AUTO:
        env = _with_deaths(env)
    if convention_of(type(env)).is_functional:  # and not an env made of one
        raise TypeError(
            f"make_env returned {type(env).__name__}, which is a function of a state; it should return a "
            "batched simulator made of it, see sample_factory/envs/BATCHED.md"
        )
    adapter = _adapter_of(env)
    adapter.ends.both = both_ends
    return adapter


def adapter_of(env: MultiAgentEnv) -> Adapter:
    """Returns the adapter inside the wrappers of a MultiAgentEnv."""
    while isinstance(env, EnvAround):
        env = env.inner
    assert isinstance(env, Adapter)
    return env


def _adapter_of(env: Any) -> Adapter:
    if isinstance(env, gym.vector.VectorEnv):
        return VectorEnvAdapter(env)
    if is_pettingzoo(env, "AECEnv"):
        return ParallelEnvAdapter(env, Turns(env))
    if is_pettingzoo(env, "utils.conversions.turn_based_aec_to_parallel_wrapper"):
        return ParallelEnvAdapter(env, Turns(env.aec_env))
    if is_pettingzoo(env, "ParallelEnv"):
        return ParallelEnvAdapter(env)
    if hasattr(env, "env_is_wrapped"):
        raise TypeError(
            f"make_env returned {type(env).__name__}, a VecEnv of Stable-Baselines3; it should return a "
            "single env, or gymnasium.make_vec(...)"
        )
    if is_multiagent(env):
        return ListAdapter(env)
    if is_simulator(env):
        return VectorEnvAdapter(SimulatorVectorEnv(env))
    if isinstance(env, gym.Env) or is_old_env(env):
        return SingleAgentAdapter(env)
    raise TypeError(
        f"make_env returned {type(env).__name__}; it should return a gymnasium.Env, a "
        "gymnasium.vector.VectorEnv, a pettingzoo.ParallelEnv or AECEnv, a batched simulator with num_envs "
        "(see sample_factory/envs/BATCHED.md), or a multi-agent env with num_agents, observation_space(s), "
        "action_space(s), reset and step"
    )


class _DeathTerminates(gym.Wrapper[Any, Any, Any, Any]):
    """Wraps a ViZDoom env that reports every end as terminated and truncated: the episode terminates if the
    player is dead, and is truncated otherwise."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated and truncated:
            game: Any = vars(self.unwrapped)["game"]
            terminated = game.is_player_dead()
            truncated = not terminated
        return observation, reward, terminated, truncated, info


def _with_deaths(env: Any) -> Any:
    """Wraps a ViZDoom env, or each copy in a SyncVectorEnv, in _DeathTerminates, and returns it. Other vector
    envs are returned unchanged."""
    if isinstance(env, gym.Env):
        return _DeathTerminates(env)
    if isinstance(env.unwrapped, gym.vector.SyncVectorEnv):
        env.unwrapped.envs = [_DeathTerminates(copy) for copy in env.unwrapped.envs]
    return env


def is_pettingzoo(env: Any, class_name: str = "") -> bool:
    """Returns whether an env is an instance of a class of PettingZoo, without importing PettingZoo.
    class_name: dotted name of the class below `pettingzoo`; empty: an instance of ParallelEnv or of
    AECEnv."""
    if not class_name:
        return is_pettingzoo(env, "ParallelEnv") or is_pettingzoo(env, "AECEnv")
    module, _, name = f"pettingzoo.{class_name}".rpartition(".")
    return module in sys.modules and isinstance(env, vars(sys.modules[module])[name])
