"""Defaults of `envpool_<id>`: those of the family whose envs are most like it."""

from collections.abc import Mapping
from typing import Any

from sample_factory.envs import envpool_family
from sample_factory.envs.atari.atari_family import atari_defaults
from sample_factory.envs.football_family import football_defaults
from sample_factory.envs.gym_family import gym_defaults
from sample_factory.envs.mujoco_family import COPIES as MUJOCO_COPIES
from sample_factory.envs.mujoco_family import mujoco_defaults
from sample_factory.envs.procgen_family import procgen_defaults
from sample_factory.envs.suite_defaults import suite_defaults


def envpool_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flags for images, for continuous control, or for small tasks.

    Runs in the main process before anything starts. Raises UnknownEnvError for an unknown id, and ImportError
    without EnvPool.
    """
    task_id = full_env_name.removeprefix(envpool_family.PREFIX)
    suite = envpool_family.suite_of(task_id)
    own = suite_defaults(task_id)
    if own:
        defaults = {**gym_defaults(full_env_name), **own}
    elif suite in envpool_family.SKIPS_FRAMES:
        defaults = {**atari_defaults(full_env_name), "env_framestack": 1}  # EnvPool stacks the images
    elif suite == "gfootball":
        defaults = dict(football_defaults(full_env_name))
    elif suite == "procgen" or task_id.startswith("CarRacing"):
        defaults = dict(procgen_defaults(full_env_name))
    elif suite.startswith("mujoco."):
        defaults = {**mujoco_defaults(full_env_name), "vector_env_copies": MUJOCO_COPIES}
    else:
        defaults = dict(gym_defaults(full_env_name))
    defaults.pop("env_engine", None)  # a flag of the other family
    return defaults
