"""Converts an experiment of Sample Factory 1 or 2 into one of this version."""

import dataclasses
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.checkpoints.file_format import why_not_written, write_state
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED, experiment_folder
from sample_factory.config.flags import ConfigError, Layer
from sample_factory.config.parsing import build_config
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS, RunFlags
from sample_factory.config.trust import foreign_file, refuse_code, without_foreign_paths
from sample_factory.envs.env_info import OwnSpaces, probe_own_spaces
from sample_factory.envs.env_registry import UnknownEnvError, resolve_family
from sample_factory.envs.wrappers.frame_stack import stacked_space
from sample_factory.hub.convert_files import (
    CHECKPOINT,
    find_files,
    new_env_name,
    new_values,
    read_old_state,
    read_settings,
)
from sample_factory.hub.convert_weights import convert_moments, convert_weights
from sample_factory.learning.gradient_descent import MODEL, GradientDescent
from sample_factory.models.network_registry import NetworkError
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.failures import ChildFailed
from sample_factory.spaces.observations import observation_layout

log = logging.getLogger("sample_factory")

COPIES = "vector_env_copies"
WORST_BEST = -1e8  # the value of old checkpoints before there was a best one


class Converted(NamedTuple):
    """A converted experiment. files: the new checkpoints."""

    folder: Path
    files: list[Path]


def convert_experiment(
    source: Path,
    destination: RunFlags,
    env: str | None = None,
    spaces: OwnSpaces | None = None,
    trust_code: bool = False,
) -> Converted:
    """Converts all policies and all their checkpoints: regular ones, milestones and the best one.

    source: folder of the old experiment; it is only read. destination: names the new folder, which must not
        exist. env: name of the env here, if it differs. spaces: of one agent, as the env has them; by default
        an env is made briefly, in another process, to get them. trust_code: import and call what the settings
        name and the checkpoints hold, which can run any code of their author.

    Raises ConfigError or UnknownEnvError, and leaves nothing behind, if something cannot be converted.
    """
    folder = experiment_folder(destination)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another --experiment, or remove it")
    path, values, version = read_settings(source)
    files = find_files(source)
    foreign = foreign_file(path, values, trust_code)
    refuse_code(Layer(str(path), values, foreign), () if env is None else ("env",), known={})
    layers = frozenset(read_old_state(files[-1], trust_code)["model"])
    env_name = env or new_env_name(values)
    layer = Layer(f"{SAVED} {path}", new_values(version, values, layers, env_name), foreign)
    config = _new_config(layer, destination, env_name)
    spec = _policy_spec(config, spaces)
    temporary = folder.with_name(f".{folder.name}.converting")
    shutil.rmtree(temporary, ignore_errors=True)  # of a conversion that was killed
    written = []
    try:
        for file in files:
            state = read_old_state(file, trust_code)
            try:
                converted = _convert_state(state, version, values, config, spec)
            except (ConfigError, NetworkError, ValueError) as error:
                raise ConfigError(f"{file}: {error}") from None
            new = _write(converted, temporary, file.relative_to(source))
            log.info("Converted %s: %s", file, new.name)
            written.append(folder / new.relative_to(temporary))
        os.rename(temporary, folder)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    config.save()
    if not (folder / "cfg.json").is_file():
        shutil.rmtree(folder)
        raise ConfigError(f"cannot write to {folder}: there is no room for its cfg.json")
    return Converted(folder, written)


def _new_config(layer: Layer, destination: RunFlags, env_name: str) -> Config:
    """Returns the configuration of the new experiment. layer: the converted settings."""
    try:
        family = resolve_family(env_name)
    except UnknownEnvError as error:
        advice = f"if the env has another name here, give it: --env=gym_{env_name}"
        raise ConfigError(f"{error}; {advice}") from None
    sections = TRAINING_SECTIONS if family.flags is None else {**TRAINING_SECTIONS, "family": family.flags}
    place = {name: vars(destination)[name] for name in OWN_FOLDER}
    layer = without_foreign_paths(layer, sections)
    values = {**layer.values, **place, "restart_behavior": "resume"}
    if family.flags is not None and COPIES in {field.name for field in dataclasses.fields(family.flags)}:
        values[COPIES] = 1  # num_envs_per_worker counted single envs
    layers = [Layer(f"defaults of {env_name}", dict(family.defaults)), layer._replace(values=values)]
    config = build_config(sections, layers, {})
    return dataclasses.replace(config, is_foreign=layer.foreign is not None)


def _policy_spec(config: Config, spaces: OwnSpaces | None) -> PolicySpec:
    """Returns the description of the network, in float32 on the CPU."""
    if spaces is None:
        try:
            spaces = probe_own_spaces(resolve_family(config.env_name), config.namespace(), 0)
        except ChildFailed as failure:
            raise ConfigError(
                f"env {config.env_name} cannot be made to get its spaces: {failure.reason}"
            ) from failure
    stored = observation_layout(spaces.observation).space
    if config.env.env_framestack > 1:
        stored = stacked_space(stored, config.env.env_framestack)
    return make_policy_spec(config, stored, spaces.action)._replace(device="cpu", precision="fp32")


def _convert_state(
    state: Mapping[str, Any], version: int, values: Mapping[str, Any], config: Config, spec: PolicySpec
) -> dict[str, Any]:
    """Returns the contents of a checkpoint of this version. version, values: of the old experiment.

    Raises ConfigError, NetworkError, or ValueError.
    """
    model = spec.build().model
    assert isinstance(model, TowerActorCritic), "a converted experiment has no custom network"
    flags = config.model
    weights = convert_weights(state["model"], model, version, flags.obs_subtract_mean, flags.obs_scale)
    model.load_state_dict(weights.state)
    descent = GradientDescent(config.learning, {MODEL: model}).state_dict()
    moments = convert_moments(state.get("optimizer", {}), state["model"], weights, model)
    descent["optimizer"]["state"] = moments
    if not moments:
        log.warning("The moments of the optimizer are not converted; it starts without")
    # Counters are env frames here; old ones may be env steps.
    frames_per_count = 1 if values.get("summaries_use_frameskip", True) else values.get("env_frameskip") or 1
    best = state.get("best_performance")
    return {
        "train_step": int(state["train_step"]),
        "env_steps": int(state["env_steps"]) * frames_per_count,
        "samples": 0,
        "curr_lr": float(state.get("curr_lr") or config.learning.learning_rate),
        "best_performance": None if best is None or float(best) < WORST_BEST else float(best),
        **descent,
    }


def _write(state: Mapping[str, Any], folder: Path, old: Path) -> Path:
    """Writes a checkpoint into the new folder; returns its path. old: the path in the old folder.

    Raises ConfigError.
    """
    kind, ending = CHECKPOINT.fullmatch(old.name).groups()  # type: ignore[union-attr]
    path = folder / old.with_name(f"{kind}_{state['train_step']:09d}_{state['env_steps']}{ending}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(state, path, path.with_name(".temp_checkpoint"))
    except (OSError, RuntimeError) as error:  # torch makes a RuntimeError of an OSError
        raise ConfigError(f"cannot write {path}: {why_not_written(state, folder, error)}") from None
    return path
