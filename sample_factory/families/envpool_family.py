"""EnvPool's envs by their id: `envpool_<id>`, e.g. envpool_Pong-v5."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.envs import family_flags
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.atari.atari_family import atari_defaults
from sample_factory.families.envpool_engine import (
    PREFIX,
    EnvPoolFlags,
    make_envpool,
    options_of_user,
    suite_of,
)
from sample_factory.families.football_family import football_defaults
from sample_factory.families.gym_family import suite_defaults
from sample_factory.families.mujoco_family import COPIES as MUJOCO_COPIES
from sample_factory.families.mujoco_family import mujoco_defaults
from sample_factory.families.procgen_family import procgen_defaults
from sample_factory.runtime.log import log

SKIPS_FRAMES = ("atari", "vizdoom")  # suites


@dataclass(frozen=True)
class EnvPoolIdFlags(EnvPoolFlags, family_flags.EnvKwargsFlags):
    """Flags of `envpool_<id>`."""


def make_envpool_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> Any:
    """Makes one vector env with --vector_env_copies copies of the env whose id follows `envpool_`."""
    task_id = full_env_name.removeprefix(PREFIX)
    suite = suite_of(task_id)
    if suite not in SKIPS_FRAMES:
        family_flags.refuse_frameskip(cfg, "EnvPool skips frames in Atari games and Doom only")
        options = options_of_user(cfg)
    else:
        options = options_of_user(cfg, {"frame_skip": "env_frameskip"})  # an argument would not be counted
        options["frame_skip"] = cfg.env_frameskip or 1
    if suite == "vizdoom" and not options.setdefault("use_combined_action", True):
        _warn_of_buttons(full_env_name)
    return make_envpool(task_id, cfg, env_config, render_mode=render_mode, **options)


@functools.cache  # once for a name, although each process makes several envs
def _warn_of_buttons(full_env_name: str) -> None:
    log.warning(
        "%s with use_combined_action=false: an action is a number for each button, which presses it unless "
        "it is exactly 0, so that a policy holds all buttons all the time",
        full_env_name,
    )


def follows_observation(full_env_name: str) -> bool:
    """Returns whether the flag defaults of an EnvPool env depend on its observation, as those of `gym_` envs
    do: True unless its suite has a similar family of this package, such as Atari."""
    task_id = full_env_name.removeprefix(PREFIX)
    suite = suite_of(task_id)
    has_family = suite in (*SKIPS_FRAMES, "gfootball", "procgen") or suite.startswith("mujoco.")
    return bool(suite_defaults(task_id)) or not (has_family or task_id.startswith("CarRacing"))


def envpool_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the flag defaults of an `envpool_` env: those of the family of this package that has the most
    similar envs, such as Atari. Raises UnknownEnvError for an id that EnvPool does not have, and
    MissingPackage if EnvPool is not installed."""
    task_id = full_env_name.removeprefix(PREFIX)
    suite = suite_of(task_id)
    if follows_observation(full_env_name):
        defaults = dict(suite_defaults(task_id))
    elif suite in SKIPS_FRAMES:
        defaults = {**atari_defaults(full_env_name), "env_framestack": 1}  # EnvPool stacks the images
    elif suite == "gfootball":
        defaults = dict(football_defaults(full_env_name))
    elif suite == "procgen" or task_id.startswith("CarRacing"):
        defaults = dict(procgen_defaults(full_env_name))
    else:
        defaults = {**mujoco_defaults(full_env_name), "vector_env_copies": MUJOCO_COPIES}
    defaults.pop("env_engine", None)  # a flag of the other family
    return defaults


FAMILY = FamilyParts(
    make_envpool_env,
    EnvPoolIdFlags,
    envpool_defaults,
    example="envpool_Pong-v5",
    follows_observation=follows_observation,
)
