"""What one env looks like, found out by making one in a throw-away process."""

from typing import Any, Mapping, NamedTuple

from sample_factory.envs.adapters import adapt
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.envs.spaces import num_action_values
from sample_factory.runtime.child import call_in_child

PROBE_TIMEOUT_SECONDS = 120.0


class EnvInfo(NamedTuple):
    """Spaces are those of one agent; `frameskip` is the number of env frames in an env step."""

    observation_space: Any
    action_space: Any
    num_agents: int
    frameskip: int
    reward_shaping: Mapping[str, Any] = {}  # at the start


def env_info(env: MultiAgentEnv, cfg: Any) -> EnvInfo:
    """Describes an env at hand. Raises ValueError for an action space that cannot be learned on."""
    num_action_values(env.action_space)
    frameskip, shaping = cfg.env_frameskip or 1, env.reward_shaping.get_default_reward_shaping()
    return EnvInfo(env.observation_space, env.action_space, env.num_agents, frameskip, shaping)


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
