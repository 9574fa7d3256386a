"""Gymnasium envs by their id, without registration: `gym_<id>`, e.g. gym_CartPole-v1."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.wrappers.time import FrameSkip

PREFIX = "gym_"
# Packages that Gymnasium's own envs need: the module that defines them -> (package, our extra).
EXTRAS = {"gymnasium.envs.mujoco": ("mujoco", "mujoco"), "gymnasium.envs.box2d": ("Box2D", "box2d")}


@dataclass(frozen=True)
class GymFlags:
    """Flags of Gymnasium envs."""

    vector_env_copies: int = flag(
        1,
        "make each env a Gymnasium VectorEnv of this many copies, each with an agent of its own; much "
        "faster for envs that have a vectorised implementation, such as CartPole-v1",
        at_least=1,
        at_most=100_000,
    )


def make_gym_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Returns the env with the Gymnasium id after `gym_`; "module:id" imports the module that registers it.

    Raises gymnasium.error.Error for an unknown id; Gymnasium's message names the nearest.
    """
    name = full_env_name.removeprefix(PREFIX)
    if cfg.vector_env_copies > 1:
        return _make_vector_env(name, cfg, render_mode)
    # Gymnasium's checker inspects every step of every env; the adapter and the buffers check what matters.
    env = gym.make(name, render_mode=render_mode, disable_env_checker=True)
    return FrameSkip(env, cfg.env_frameskip) if cfg.env_frameskip and cfg.env_frameskip > 1 else env


def _make_vector_env(name: str, cfg: Any, render_mode: str | None) -> gym.vector.VectorEnv:
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        raise ConfigError(
            f"--env_frameskip={cfg.env_frameskip} is for single envs; use --vector_env_copies=1 with it"
        )
    module, _, name = name.rpartition(":")
    if module:  # gym.spec does not import it as gym.make does
        importlib.import_module(module)
    has_own = gym.spec(name).vector_entry_point is not None
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT if has_own else gym.VectorizeMode.SYNC
    kwargs: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    return gym.make_vec(name, num_envs=cfg.vector_env_copies, vectorization_mode=mode, **kwargs)


def gym_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flags for classic control: small nets, no recurrence, several passes over a batch.

    Learning these tasks is limited by samples, not by compute. With these flags CartPole-v1 stays at a return
    of 500 from 270k steps; with one pass at the general learning rate, the return after 400k is 290.
    """
    return {
        "use_rnn": False,
        "encoder_mlp_layers": (64, 64),
        "nonlinearity": "tanh",
        "learning_rate": 5e-4,
        "ppo_epochs": 3,
        "num_batches_per_iteration": 2,
        "max_grad_norm": 1.0,
    }


def checked_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the defaults of the `gym_` family, after a check of the name.

    Runs in the main process before anything starts. Raises UnknownEnvError for an unknown id and ImportError
    for a missing package.
    """
    check_env(full_env_name.removeprefix(PREFIX))
    return gym_defaults(full_env_name)


def check_env(name: str) -> None:
    """Checks a Gymnasium id. Raises UnknownEnvError or ImportError, see `checked_defaults`."""
    try:
        if ":" not in name:  # otherwise its module would have to be imported
            gym.spec(name)
    except gym.error.UnregisteredEnv as error:
        raise UnknownEnvError(f"unknown env {PREFIX + name!r}: {' '.join(str(error).split())}") from None
    except gym.error.Error:  # e.g. an id without a version: gym.make accepts or refuses it later
        pass
    spec = gym.registry.get(name)
    entry_point = str(spec.entry_point) if spec is not None else ""
    for place, (package, extra) in EXTRAS.items():
        if entry_point.startswith(place) and importlib.util.find_spec(package) is None:
            raise ImportError(
                f"env {PREFIX + name!r} needs the package {package}, which is not installed: "
                f"pip install 'sample-factory[{extra}]'"
            )
