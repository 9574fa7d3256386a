"""Envs that are registered as in version 2."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.adapters.list_style import is_multiagent
from sample_factory.envs.doom.doom_family import DOOM_SPECS
from sample_factory.envs.env_family import MakeEnv
from sample_factory.envs.env_registry import register_env as register_family

ARGUMENTS = ("full_env_name", "cfg", "env_config", "render_mode")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def register_env(env_name: str, make_env_func: MakeEnv) -> None:
    """Registers make_env_func(full_env_name, cfg, env_config, render_mode); it may have fewer parameters, and
    other names for them. The Doom envs of version 2's examples are built in, and not registered again."""
    if isinstance(make_env_func, functools.partial) and DOOM_SPECS.get(env_name) in make_env_func.args:
        return
    kinds = [parameter.kind for parameter in inspect.signature(make_env_func).parameters.values()]
    takes_all = inspect.Parameter.VAR_POSITIONAL in kinds
    num_taken = len(ARGUMENTS) if takes_all else sum(kind in POSITIONAL for kind in kinds)

    def make_env(full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None) -> Any:
        env = make_env_func(*(full_env_name, cfg, env_config, render_mode)[:num_taken])
        is_wrapped = isinstance(env, gym.Env) and is_multiagent(env)
        return AgentsOfVersion2(env, cfg.batched_sampling) if is_wrapped else env

    register_family(env_name, make_env)


class AgentsOfVersion2(gym.Wrapper[Any, Any, Any, Any]):
    """A multi-agent env of version 2, whose agents have the same spaces, with lists of one entry per agent.

    With --batched_sampling, the env takes an array of actions [A] or [A, K]; for a Tuple with a Box, a list
    with an array [A, ...] for each component. Observations may be lists, arrays, or dicts of arrays [A, ...].
    """

    is_multiagent = True
    observation_spaces = action_spaces = None  # hides attributes that a simulator uses for itself

    def __init__(self, env: gym.Env[Any, Any], takes_batches: bool):
        super().__init__(env)
        space = env.action_space
        self._takes_batches = takes_batches
        self._takes_parts = isinstance(space, gym.spaces.Tuple) and any(
            isinstance(part, gym.spaces.Box) for part in space
        )

    def reset(self, **kwargs: Any) -> tuple[Any, Any]:
        observations, infos = self.env.reset(**kwargs)
        return _by_agent(observations), infos

    def step(self, action: Any) -> Any:
        if self._takes_batches:
            action = [np.array(part) for part in zip(*action)] if self._takes_parts else np.array(action)
        observations, *results = self.env.step(action)
        return _by_agent(observations), *results


def _by_agent(observations: Any) -> Sequence[Any]:
    """Returns the observation of each agent."""
    if not isinstance(observations, Mapping):
        return list(observations)
    return [dict(zip(observations, values)) for values in zip(*observations.values())]
