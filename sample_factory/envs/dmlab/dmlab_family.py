"""The `dmlab_` family as plain data: its flags, and the defaults of other flags. Needs no deepmind_lab."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import flag
from sample_factory.envs.dmlab.levels import find_spec


@dataclass(frozen=True)
class DmlabFlags:
    """The command-line flags that only the `dmlab_` envs have. Names and defaults are version 1's."""

    res_w: int = flag(96, "width of the image that the policy sees, in pixels", at_least=1, at_most=4096)
    res_h: int = flag(72, "height of the image that the policy sees, in pixels", at_least=1, at_most=4096)
    dmlab_throughput_benchmark: bool = flag(
        False,
        "to measure the speed: random actions whatever the policy chooses, the same episodes in every run, "
        "no instructions",
    )
    dmlab_renderer: str = flag(
        "software",
        "software: on the CPU; hardware: on the GPUs of --dmlab_gpus",
        choices=("software", "hardware"),
    )
    dmlab_gpus: tuple[int, ...] = flag(
        (0,),
        "indices of the GPUs that draw with --dmlab_renderer=hardware; worker processes take turns",
        at_least=0,
        at_most=1000,
    )
    dmlab30_dataset: str = flag(
        "~/datasets/brady_konkle_oliva2008",
        "folder with the images of Brady, Konkle, Alvarez and Oliva (2008), which some psychlab levels show",
        metavar="FOLDER",
    )
    dmlab_with_instructions: bool = flag(
        True, "observe the level's instruction in words, as tokens (observation INSTR)"
    )
    dmlab_extended_action_set: bool = flag(
        False, "15 actions, with two speeds of turning and looking up and down, instead of 9"
    )
    dmlab_use_level_cache: bool = flag(
        True, "keep generated maps on disk and use them again: generating one can take a minute"
    )
    dmlab_level_cache_path: str = flag(
        os.path.join(os.getcwd(), ".dmlab_cache"), "folder of the generated maps", metavar="FOLDER"
    )
    dmlab_one_task_per_worker: bool = flag(
        False,
        "envs with several tasks: all envs of a worker process play the same one, so that fast tasks do not "
        "wait for slow ones; use a multiple of the number of tasks as --num_workers",
    )


def dmlab_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns values of other flags for these envs, those of version 1. Raises UnknownEnvError."""
    find_spec(full_env_name)
    return {
        "encoder_custom": "dmlab_instructions",
        "encoder_type": "conv",
        "encoder_subtype": "convnet_impala",
        "hidden_size": 512,
        "obs_subtract_mean": 0.0,
        "obs_scale": 255.0,
        "env_frameskip": 4,
        "fps": 60,
    }
