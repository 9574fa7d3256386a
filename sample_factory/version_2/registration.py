"""Registers envs by the interface of version 2, and adapts its multi-agent envs."""

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from sample_factory.envs.adapters.list_style import is_multiagent
from sample_factory.envs.adapters.tensors import to_host
from sample_factory.envs.adapters.vector_env import split_infos
from sample_factory.envs.env_family import EnvFamily, MakeEnv, UnknownEnvError
from sample_factory.envs.env_registry import extend_family, extension_of, resolve_trained_family
from sample_factory.envs.env_registry import register_env as register_family
from sample_factory.envs.v1_registration import ParserRecorder, joined, values_of_script
from sample_factory.families.doom.doom_family import DOOM_SPECS

ARGUMENTS = ("full_env_name", "cfg", "env_config", "render_mode")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def register_env(env_name: str, make_env_func: MakeEnv) -> None:
    """Registers an env of version 2.

    make_env_func: called with full_env_name, cfg, env_config, render_mode by position, as many of them as the
        function has parameters. Doom envs of version 2's examples are built in and not registered again.
    """
    if isinstance(make_env_func, functools.partial) and DOOM_SPECS.get(env_name) in make_env_func.args:
        return
    kinds = [parameter.kind for parameter in inspect.signature(make_env_func).parameters.values()]
    takes_all = inspect.Parameter.VAR_POSITIONAL in kinds
    num_taken = len(ARGUMENTS) if takes_all else sum(kind in POSITIONAL for kind in kinds)

    def make_env(full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None) -> Any:
        env = make_env_func(*(full_env_name, cfg, env_config, render_mode)[:num_taken])
        is_wrapped = isinstance(env, gym.Env) and is_multiagent(env)
        if not is_wrapped:
            return env
        # A script may give no cfg, or what it has read from a cfg.json, which lacks these flags.
        flags = cfg if isinstance(cfg, Mapping) else {} if cfg is None else vars(cfg)
        gpu_actions = flags.get("env_gpu_actions", False) and flags.get("device", "cpu")
        return AgentsOfVersion2(env, flags.get("batched_sampling", False), gpu_actions)

    register_family(env_name, make_env)


def add_to_family(
    env_name: str, parser: ParserRecorder, others: Collection[str], more: Mapping[str, Any]
) -> None:
    """Adds the arguments and defaults of a script's parser to the flags of an env, registered or not.

    As in version 2, default values with names that are no flags are kept on the cfg.
    others: names of flags that all envs have. more: further defaults, flag -> value.
    """
    extend_family(env_name, parser.flags_type(), {})
    own = family_of_script(env_name).without_flags(parser.recorded_defaults, others)
    defaults = {name: value for name, value in parser.recorded_defaults.items() if name not in own}
    extend_family(env_name, joined(parser.flags_type(), values_of_script(own)), {**defaults, **more})


def family_of_script(env_name: str) -> EnvFamily:
    """Returns the family of an env; for an env not registered yet, a family with only the script's flags."""
    try:
        return resolve_trained_family(env_name)
    except UnknownEnvError:
        # As make_env, it raises UnknownEnvError again if no env is registered before the run begins.
        make_env = resolve_trained_family
        return EnvFamily(env_name, make_env, None, {}).extended(*extension_of(env_name))


class AgentsOfVersion2(gym.Wrapper[Any, Any, Any, Any]):
    """Wraps a multi-agent env of version 2, so that it takes and returns lists with one entry per agent. All
    agents of the env have the same spaces.

    With --batched_sampling, `step` of the env gets an array of actions [A] or [A, K], or, for a Tuple with a
    Box, a list with an array [A, ...] for each component; with --env_gpu_actions, tensors in place of arrays.
    The env may return observations and infos as lists, arrays, tensors, or dicts of such arrays.
    """

    is_multiagent = True
    observation_spaces = action_spaces = None  # hides attributes that a simulator uses for itself

    def __init__(self, env: gym.Env[Any, Any], takes_batches: bool, device: str | Literal[False] = False):
        """Wraps an env of version 2.

        takes_batches: value of --batched_sampling: whether the env takes the actions of all agents in one
            array.
        device: value of --device if the env takes tensors of actions; False if it takes arrays.
        """
        super().__init__(env)
        space = env.action_space
        self._takes_batches = takes_batches
        self._device = device
        self._takes_parts = isinstance(space, gym.spaces.Tuple) and any(
            isinstance(part, gym.spaces.Box) for part in space
        )

    def reset(self, **kwargs: Any) -> tuple[Any, Any]:
        observations, infos = self.env.reset(**kwargs)
        observations = _by_agent(to_host(observations))
        return observations, _infos_by_agent(to_host(infos), len(observations))

    def step(self, action: Any) -> Any:
        if self._takes_batches:
            parts = zip(*action) if self._takes_parts else [action]
            batches = [self._as_batch(np.array(part)) for part in parts]
            action = batches if self._takes_parts else batches[0]
        observations, *results, infos = map(to_host, self.env.step(action))
        observations = _by_agent(observations)
        return observations, *results, _infos_by_agent(infos, len(observations))

    def _as_batch(self, actions: np.ndarray) -> Any:
        if not self._device:
            return actions
        import torch  # which the env has loaded

        on_gpu = self._device != "cpu" and torch.cuda.is_available()
        return torch.as_tensor(actions, device="cuda" if on_gpu else "cpu")


def _infos_by_agent(infos: Any, num_agents: int) -> Any:
    """Splits a dict of arrays [A, ...] into a list of A infos; returns any other value unchanged."""
    if not isinstance(infos, Mapping):
        return infos
    return split_infos(infos, np.arange(num_agents), num_agents)


def _by_agent(observations: Any) -> Sequence[Any]:
    """Returns a list of A observations. observations: a sequence, or a dict of arrays [A, ...]."""
    if not isinstance(observations, Mapping):
        return list(observations)
    return [dict(zip(observations, values)) for values in zip(*observations.values())]
