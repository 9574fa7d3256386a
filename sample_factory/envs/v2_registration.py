"""Envs that are registered as in version 2."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.adapters.list_style import is_multiagent
from sample_factory.envs.doom.doom_family import DOOM_SPECS
from sample_factory.envs.env_registry import MakeEnv
from sample_factory.envs.env_registry import register_env as register_family

ARGUMENTS = ("full_env_name", "cfg", "env_config", "render_mode")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def register_env(env_name: str, make_env_func: MakeEnv) -> None:
    """Registers make_env_func(full_env_name, cfg, env_config, render_mode), whatever its parameters are called;
    it may have fewer. The Doom envs of version 2's examples are built in, and not registered again."""
    if isinstance(make_env_func, functools.partial) and DOOM_SPECS.get(env_name) in make_env_func.args:
        return
    kinds = [parameter.kind for parameter in inspect.signature(make_env_func).parameters.values()]
    takes_all = inspect.Parameter.VAR_POSITIONAL in kinds
    num_taken = len(ARGUMENTS) if takes_all else sum(kind in POSITIONAL for kind in kinds)

    def make_env(full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None) -> Any:
        env = make_env_func(*(full_env_name, cfg, env_config, render_mode)[:num_taken])
        is_batch = cfg.batched_sampling and isinstance(env, gym.Env) and is_multiagent(env)
        return AgentsOfBatch(env) if is_batch else env

    register_family(env_name, make_env)


class AgentsOfBatch(gym.Wrapper[Any, Any, Any, Any]):
    """A multi-agent env for --batched_sampling, which takes and returns batches, as an env with lists.

    The env takes an array of actions [A] or [A, K]; for a Tuple with a Box, a list with an array [A, ...] for
    each component. It returns observations as a dict of arrays [A, ...], as an array, or as a list.
    """

    is_multiagent = True

    def reset(self, **kwargs: Any) -> tuple[Any, Any]:
        observations, infos = self.env.reset(**kwargs)
        return _by_agent(observations), infos

    def step(self, action: Sequence[Any]) -> Any:
        space = self.action_space
        is_mixed = isinstance(space, gym.spaces.Tuple) and any(
            isinstance(part, gym.spaces.Box) for part in space
        )
        batch = [np.array(part) for part in zip(*action)] if is_mixed else np.array(action)
        observations, *results, infos = self.env.step(batch)
        return _by_agent(observations), *results, infos or [{} for _ in action]


def _by_agent(observations: Any) -> Sequence[Any]:
    """Returns the observation of each agent."""
    if not isinstance(observations, Mapping):
        return list(observations)
    return [dict(zip(observations, values)) for values in zip(*observations.values())]
