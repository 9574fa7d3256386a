"""The `dmlab_` family: its flags, the defaults of other flags, and how its envs are made."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_factory.config.experiment_folder import experiment_folder
from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.packages import MissingPackage
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.dmlab.level_cache import LevelCache
from sample_factory.families.dmlab.levels import (
    HELD_OUT,
    WITH_DATASET,
    HumanScores,
    find_spec,
    level_name,
    stats_prefix,
)

if TYPE_CHECKING:
    from sample_factory.families.dmlab.dmlab_env import DmlabEnv


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
        only_with={"dmlab_renderer": ("hardware",)},
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
        os.path.join(os.getcwd(), ".dmlab_cache"),
        "folder of the generated maps",
        metavar="FOLDER",
        only_with={"dmlab_use_level_cache": (True,)},
    )
    dmlab_one_task_per_worker: bool = flag(
        False,
        "envs with several tasks: all envs of a worker process play the same one, so that fast tasks do not "
        "wait for slow ones; use a multiple of the number of tasks as --num_workers",
    )


def dmlab_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the flag defaults of `dmlab_` envs, as in version 1. Raises UnknownEnvError for an unknown
    name."""
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


def make_dmlab_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> "DmlabEnv":
    """Makes an env that plays one level. If the name stands for several levels, env_id chooses one of them;
    with --dmlab_one_task_per_worker, the index of the rollout worker does.

    Raises UnknownEnvError for an unknown name, and ConfigError if the engine or a data set is missing.
    """
    spec = find_spec(full_env_name)
    try:
        import deepmind_lab
    except ImportError as error:
        raise MissingPackage(
            f"env {full_env_name!r} needs the package deepmind_lab, of which there is no wheel: build one "
            "with Bazel, as sample_factory/families/dmlab/README.md describes"
        ) from error
    from sample_factory.families.dmlab.dmlab_env import DmlabEnv, observed

    chosen_by = env_config.worker_index if cfg.dmlab_one_task_per_worker else env_config.env_id
    task = chosen_by % len(spec.levels)
    level = spec.levels[task]
    cache = None
    if cfg.dmlab_use_level_cache:
        folder = Path(cfg.dmlab_level_cache_path).expanduser()
        cache = LevelCache(folder, level, experiment_folder(cfg))
    lab = deepmind_lab.Lab(
        level,
        observed(cfg),
        config={**level_settings(level, cfg, env_config), **spec.settings},
        renderer=cfg.dmlab_renderer,
        level_cache=cache,
    )
    return DmlabEnv(lab, stats_prefix(task, level), cfg, cache)


def level_settings(level: str, cfg: Any, env_config: EnvConfig) -> Mapping[str, str]:
    """Returns a level's settings for `config` of deepmind_lab.Lab. Raises ConfigError if the level
    shows images of --dmlab30_dataset and there is no such folder."""
    settings = {"width": str(cfg.res_w), "height": str(cfg.res_h)}
    name = level_name(level)
    if name in WITH_DATASET:
        dataset = Path(cfg.dmlab30_dataset).expanduser()
        if not dataset.is_dir():
            raise ConfigError(
                f"level {name} shows images of --dmlab30_dataset={dataset}, and there is no such folder; "
                "sample_factory/families/dmlab/README.md says where they are"
            )
        settings["datasetPath"] = str(dataset)
    if name in HELD_OUT:
        settings["allowHoldOutLevels"] = "true"
    if cfg.dmlab_renderer == "hardware":
        settings["gpuDeviceIndex"] = str(cfg.dmlab_gpus[env_config.worker_index % len(cfg.dmlab_gpus)])
    return settings


FAMILY = FamilyParts(
    make_dmlab_env,
    DmlabFlags,
    dmlab_defaults,
    metrics=HumanScores,
    example="dmlab_30 or dmlab_rooms_watermaze",
)
