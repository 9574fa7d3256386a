"""Makes the envs of the `dmlab_` family. The only module that imports deepmind_lab."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.experiment_folder import experiment_folder
from sample_factory.config.flags import ConfigError
from sample_factory.envs.dmlab.dmlab_env import (
    ACTIONS,
    EXTENDED_ACTIONS,
    DmlabEnv,
    DmlabSettings,
    Task,
)
from sample_factory.envs.dmlab.level_cache import LevelCache
from sample_factory.envs.dmlab.levels import HELD_OUT, WITH_DATASET, DmlabSpec, find_spec, level_name
from sample_factory.envs.packages import MissingPackage
from sample_factory.envs.protocol import EnvConfig

HOW_TO_BUILD = (
    "the package deepmind_lab, of which there is no wheel: build one with Bazel, as "
    "sample_factory/envs/dmlab/README.md describes"
)


def make_dmlab_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> DmlabEnv:
    """Returns the env of one task: with several, it is chosen by env_id or, with a flag, by worker.

    Raises UnknownEnvError, and ConfigError if the engine or a data set is missing.
    """
    spec = find_spec(full_env_name)
    try:
        import deepmind_lab
    except ImportError as error:
        raise MissingPackage(f"env {full_env_name!r} needs {HOW_TO_BUILD}") from error
    task = choose_task(spec, cfg, env_config)
    settings = DmlabSettings(
        cfg.res_w,
        cfg.res_h,
        cfg.env_frameskip,
        EXTENDED_ACTIONS if cfg.dmlab_extended_action_set else ACTIONS,
        with_instructions=cfg.dmlab_with_instructions and not cfg.dmlab_throughput_benchmark,
        is_benchmark=cfg.dmlab_throughput_benchmark,
    )
    cache = None
    if cfg.dmlab_use_level_cache:
        folder = Path(cfg.dmlab_level_cache_path).expanduser()
        cache = LevelCache(folder, task.level, experiment_folder(cfg))
    lab = deepmind_lab.Lab(
        task.level,
        settings.observed,
        config=level_settings(spec, task, cfg, env_config),
        renderer=cfg.dmlab_renderer,
        level_cache=cache,
    )
    return DmlabEnv(lab, task, settings, cache)


def choose_task(spec: DmlabSpec, cfg: Any, env_config: EnvConfig) -> Task:
    """Returns the task of an env."""
    chosen_by = env_config.worker_index if cfg.dmlab_one_task_per_worker else env_config.env_id
    index = chosen_by % len(spec.levels)
    return Task(index, spec.levels[index])


def level_settings(spec: DmlabSpec, task: Task, cfg: Any, env_config: EnvConfig) -> Mapping[str, str]:
    """Returns the `config` of deepmind_lab.Lab. Raises ConfigError for a missing data set."""
    settings = {"width": str(cfg.res_w), "height": str(cfg.res_h), **spec.settings}
    name = level_name(task.level)
    if name in WITH_DATASET:
        dataset = Path(cfg.dmlab30_dataset).expanduser()
        if not dataset.is_dir():
            raise ConfigError(
                f"level {name} shows images of --dmlab30_dataset={dataset}, and there is no such folder; "
                "sample_factory/envs/dmlab/README.md says where they are"
            )
        settings["datasetPath"] = str(dataset)
    if name in HELD_OUT:
        settings["allowHoldOutLevels"] = "true"
    if cfg.dmlab_renderer == "hardware":
        settings["gpuDeviceIndex"] = str(cfg.dmlab_gpus[env_config.worker_index % len(cfg.dmlab_gpus)])
    return settings
