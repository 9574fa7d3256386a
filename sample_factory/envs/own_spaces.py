"""The spaces of an env's agents as its author wrote them, before they are converted for storage."""

from typing import Any, NamedTuple

import gymnasium as gym

from sample_factory.envs.adapters.adapt import is_pettingzoo
from sample_factory.envs.adapters.list_style import spaces_by_agent
from sample_factory.envs.env_info import PROBE_TIMEOUT_SECONDS, make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.runtime.child import run_in_child
from sample_factory.runtime.child_side import ChildContext


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
    spaces: OwnSpaces = run_in_child("env_probe", _SpacesProbe, (family, cfg, policy_id), timeout)
    return spaces


class _SpacesProbe:
    """In the child: makes an env, looks at it and closes it."""

    def __init__(self, family: EnvFamily, cfg: Any, policy_id: int, context: ChildContext):
        self._env = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
        context.cleanup.callback(self._env.close)
        self._kind = policy_id % len(self._env.kinds.spaces)

    def run(self) -> OwnSpaces:
        return own_spaces(self._env)[self._env.kinds.of_agent.index(self._kind)]
