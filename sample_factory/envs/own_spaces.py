"""The spaces of an env's agents as its author wrote them, before they are converted for storage."""

import contextlib
from typing import Any, NamedTuple

import gymnasium as gym

from sample_factory.envs.adapters.adapt import is_pettingzoo
from sample_factory.envs.adapters.list_style import spaces_by_agent
from sample_factory.envs.env_info import PROBE_TIMEOUT_SECONDS, make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.runtime.child import call_in_child


class OwnSpaces(NamedTuple):
    """The spaces of one agent."""

    observation: gym.Space[Any]
    action: gym.Space[Any]


def own_spaces(env: MultiAgentEnv) -> list[OwnSpaces]:
    """Returns the spaces of each agent of an adapted env."""
    own = env.env
    if isinstance(own, gym.vector.VectorEnv):
        return [OwnSpaces(own.single_observation_space, own.single_action_space)] * env.num_agents
    if is_pettingzoo(own, "ParallelEnv"):
        return [
            OwnSpaces(own.observation_space(name), own.action_space(name)) for name in own.possible_agents
        ]
    observation_spaces, action_spaces = (
        spaces_by_agent(own, name, env.num_agents) for name in ("observation_space", "action_space")
    )
    return list(map(OwnSpaces, observation_spaces, action_spaces))


def probe_own_spaces(family: EnvFamily, cfg: Any, policy_id: int) -> OwnSpaces:
    """In the parent: returns the spaces of the agents that a policy plays, from an env made in a child.

    With K kinds of agents, policy p plays kind p % K. Raises ChildFailed.
    """
    timeout = max(PROBE_TIMEOUT_SECONDS, cfg.reset_timeout_seconds)
    spaces: OwnSpaces = call_in_child("env_probe", _spaces_of_policy, (family, cfg, policy_id), timeout)
    return spaces


def _spaces_of_policy(family: EnvFamily, cfg: Any, policy_id: int) -> OwnSpaces:
    """In the child: makes an env, looks at it and closes it."""
    with contextlib.closing(make_adapted_env(family, cfg, EnvConfig(0, 0, 0))) as env:
        kind = policy_id % len(env.kinds.spaces)
        return own_spaces(env)[env.kinds.of_agent.index(kind)]
