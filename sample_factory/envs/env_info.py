"""What one env looks like, found out by making one in a throw-away process."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.runtime.child import call_in_child
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds

PROBE_TIMEOUT_SECONDS = 120.0


class EnvInfo(NamedTuple):
    """`frameskip` is the number of env frames in an env step."""

    kinds: AgentKinds
    frameskip: int
    reward_shaping: Mapping[str, Any] = {}  # at the start

    @property
    def num_agents(self) -> int:
        return len(self.kinds.of_agent)


def env_info(env: MultiAgentEnv, cfg: Any) -> EnvInfo:
    """Describes an env at hand. Raises ValueError for an action space that cannot be learned on."""
    for spaces in env.kinds.spaces:
        action_layout(spaces.action)  # raises
    frameskip, shaping = cfg.env_frameskip or 1, env.reward_shaping.get_default_reward_shaping()
    return EnvInfo(env.kinds, frameskip, shaping)


def make_adapted_env(
    family: EnvFamily, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> MultiAgentEnv:
    """The family's env, adapted. Runs wherever the env is to live."""
    return adapt(family.make(cfg, env_config, render_mode))


def probe_env_info(family: EnvFamily, cfg: Any) -> EnvInfo:
    """In the parent: the EnvInfo of a family's env. Raises ChildFailed, with the child's traceback."""
    return call_in_child("env_probe", _probe, (family, cfg), PROBE_TIMEOUT_SECONDS)


def _probe(family: EnvFamily, cfg: Any) -> EnvInfo:
    """In the child."""
    env = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
    try:
        return env_info(env, cfg)
    finally:
        env.close()
