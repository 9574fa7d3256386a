"""MuJoCo's tasks under short names, `mujoco_<name>`, simulated by EnvPool or by Gymnasium."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sample_factory.envs import family_flags
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families import gym_family
from sample_factory.families.envpool_engine import EnvPoolFlags, make_envpool, options_of_user

COPIES = 16
# Names of version 2 of Sample Factory -> ids, the same in EnvPool and in Gymnasium.
IDS = {
    "mujoco_ant": "Ant-v5",
    "mujoco_doublependulum": "InvertedDoublePendulum-v5",
    "mujoco_halfcheetah": "HalfCheetah-v5",
    "mujoco_hopper": "Hopper-v5",
    "mujoco_humanoid": "Humanoid-v5",
    "mujoco_pendulum": "InvertedPendulum-v5",
    "mujoco_pusher": "Pusher-v5",
    "mujoco_reacher": "Reacher-v5",
    "mujoco_standup": "HumanoidStandup-v5",
    "mujoco_swimmer": "Swimmer-v5",
    "mujoco_walker": "Walker2d-v5",
}

# The rate that follows the KL divergence makes large changes: too large for tasks in which a fall ends the
# episode, but for Ant, which seldom falls.
_FAST = {"initial_stddev": 0.135, "lr_schedule": "kl_adaptive_epoch", "lr_schedule_kl_threshold": 0.04}
# More and smaller steps, about those of CleanRL and of the RL Zoo of Stable-Baselines3.
_CAREFUL = {
    "rollout": 128,
    "batch_size": 128,
    "num_batches_per_iteration": 16,
    "lr_schedule": "linear_decay",
}
TASK_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "mujoco_ant": _FAST,
    "mujoco_halfcheetah": {**_FAST, "gamma": 0.98, "gae_lambda": 0.92},
    "mujoco_hopper": _CAREFUL,
    "mujoco_walker": _CAREFUL,
}


@dataclass(frozen=True)
class MujocoFlags(EnvPoolFlags, family_flags.EnvKwargsFlags):
    """Flags of MuJoCo's tasks."""

    vector_env_copies: int = family_flags.vector_env_copies_flag(COPIES)
    env_engine: str = family_flags.env_engine_flag("Gymnasium")


def make_mujoco_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Makes a vector env of --vector_env_copies copies of a task; for one copy in Gymnasium, a plain env.

    With a render_mode, always makes a single env of Gymnasium, which has the same tasks: EnvPool's pictures
    need a display, and a vector env would draw all copies.
    """
    env_id = IDS[full_env_name]
    if render_mode is not None:
        cfg = copy.copy(cfg)
        cfg.vector_env_copies = 1
    if cfg.env_engine == family_flags.GYMNASIUM or render_mode is not None:
        return gym_family.make_gym_env(f"gym_{env_id}", cfg, env_config, render_mode)
    family_flags.refuse_frameskip(
        cfg,
        "EnvPool repeats the actions of MuJoCo's tasks by itself; "
        """use --env_kwargs='{"frame_skip": 10}'""",
    )
    return make_envpool(env_id, cfg, env_config, **options_of_user(cfg))


def mujoco_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flag defaults for learning from few frames: many SGD steps on few samples, and small changes of
    the actions."""
    return {
        "env_engine": family_flags.default_engine(),
        # All copies in one process: a step of them takes less time than a message to another process.
        "serial_mode": True,
        "num_workers": 1,
        "num_envs_per_worker": 1,
        "worker_num_splits": 1,
        "learner_main_loop_num_cores": 1,
        "async_rl": False,
        "use_rnn": False,
        "precision": "fp32",
        "actor_critic_share_weights": False,
        "encoder_mlp_layers": (64, 64),
        "nonlinearity": "tanh",
        "policy_initialization": "torch_default",
        "adaptive_stddev": False,
        "initial_stddev": 0.4,
        "rollout": 32,
        "batch_size": 512,
        "num_batches_per_iteration": 2,
        "ppo_epochs": 10,
        "gamma": 0.99,
        "with_vtrace": False,
        "gae_lambda": 0.95,
        "learning_rate": 3e-4,
        "ppo_clip_ratio": 0.2,
        "max_grad_norm": 0.8,
        "exploration_loss_coeff": 0.0004,
        **TASK_FLAGS.get(full_env_name, {}),
    }


FAMILY = FamilyParts(make_mujoco_env, MujocoFlags, mujoco_defaults, IDS)
