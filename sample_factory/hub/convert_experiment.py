"""Converts an experiment of Sample Factory 1 or 2 into one of this version."""

import dataclasses
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.checkpoints.file_format import why_not_written, write_state
from sample_factory.checkpoints.milestones import Milestone, checkpoint_folder, checkpoint_name
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED, experiment_folder
from sample_factory.config.flags import ConfigError, Layer
from sample_factory.config.parsing import build_config
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS, RunFlags
from sample_factory.config.trust import foreign_file, refuse_code, without_foreign_paths
from sample_factory.envs.env_registry import EnvFamily, UnknownEnvError, resolve_family
from sample_factory.envs.own_spaces import OwnSpaces, probe_own_spaces
from sample_factory.envs.wrappers.frame_stack import stacked_space
from sample_factory.hub.convert_files import OldFile, find_files, read_old_state, read_settings
from sample_factory.hub.convert_flags import OldSettings, new_env_name, new_values, recognize
from sample_factory.hub.convert_weights import best_performance, convert_moments, convert_weights
from sample_factory.learning.gradient_descent import MODEL, GradientDescent
from sample_factory.models.network_registry import NetworkError
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.failures import ChildFailed
from sample_factory.spaces.observations import observation_layout

log = logging.getLogger("sample_factory")

COPIES = "vector_env_copies"


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
    path, values = read_settings(source)
    old = recognize(values, str(path))
    files = find_files(source)
    foreign = foreign_file(path, values, trust_code)
    refuse_code(Layer(str(path), values, foreign), () if env is None else ("env",), known={})
    layers = frozenset(read_old_state(files[-1].path, trust_code)["model"])
    env_name = env or new_env_name(old)
    layer = Layer(f"{SAVED} {path}", new_values(old, layers, env_name), foreign)
    config = _new_config(layer, destination, env_name)
    spec = _policy_spec(config, spaces)
    temporary = folder.with_name(f".{folder.name}.converting")
    shutil.rmtree(temporary, ignore_errors=True)  # of a conversion that was killed
    try:
        written = [
            _convert_file(file, _Conversion(old, config, spec, trust_code), temporary) for file in files
        ]
        os.rename(temporary, folder)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    config.save()
    if not (folder / "cfg.json").is_file():
        shutil.rmtree(folder)
        raise ConfigError(f"cannot write to {folder}: there is no room for its cfg.json")
    return Converted(folder, [folder / path.relative_to(temporary) for path in written])


class _Conversion(NamedTuple):
    """Inputs of the conversion that are the same for all checkpoints."""

    old: OldSettings
    config: Config
    spec: PolicySpec
    trust_code: bool


def _new_config(layer: Layer, destination: RunFlags, env_name: str) -> Config:
    """Returns the configuration of the new experiment. layer: the converted settings."""
    family = _family(env_name)
    sections = TRAINING_SECTIONS if family.flags is None else {**TRAINING_SECTIONS, "family": family.flags}
    place = {name: vars(destination)[name] for name in OWN_FOLDER}
    own = set() if family.flags is None else {field.name for field in dataclasses.fields(family.flags)}
    layer = without_foreign_paths(layer, sections)
    values = {**layer.values, **place, "restart_behavior": "resume"}
    if COPIES in own:
        values[COPIES] = 1  # num_envs_per_worker counted single envs
    layers = [Layer(f"defaults of {env_name}", dict(family.defaults)), layer._replace(values=values)]
    config = build_config(sections, layers, {})
    return dataclasses.replace(config, is_foreign=layer.foreign is not None)


def _family(env_name: str) -> EnvFamily:
    try:
        return resolve_family(env_name)
    except UnknownEnvError as error:
        raise ConfigError(
            f"{error}; if the env has another name here, give it: --env=gym_{env_name}"
        ) from None


def _policy_spec(config: Config, spaces: OwnSpaces | None) -> PolicySpec:
    """Returns the description of the network, in float32 on the CPU."""
    if spaces is None:
        try:
            spaces = probe_own_spaces(_family(config.env_name), config.namespace(), 0)
        except ChildFailed as failure:
            raise ConfigError(
                f"env {config.env_name} cannot be made to get its spaces: {failure.reason}"
            ) from failure
    stored = observation_layout(spaces.observation).space
    if config.env.env_framestack > 1:
        stored = stacked_space(stored, config.env.env_framestack)
    return make_policy_spec(config, stored, spaces.action)._replace(device="cpu", precision="fp32")


def _convert_file(file: OldFile, conversion: _Conversion, folder: Path) -> Path:
    """Writes a checkpoint into the new folder. Raises ConfigError that begins with the old file."""
    state = read_old_state(file.path, conversion.trust_code)
    try:
        converted = _convert_state(state, conversion, file.policy_id)
    except (ConfigError, NetworkError, ValueError) as error:
        raise ConfigError(f"{file.path}: {error}") from None
    version, env_frames = converted["train_step"], converted["env_steps"]
    name = checkpoint_name(version, env_frames)
    if file.is_milestone:
        path = Milestone(file.policy_id, version, env_frames).path(folder)
    elif file.kind == "best":
        path = checkpoint_folder(folder, file.policy_id) / f"best_{version:09d}_{env_frames}{file.suffix}.pth"
    else:
        path = checkpoint_folder(folder, file.policy_id) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(converted, path, path.with_name(".temp_checkpoint"))
    except (OSError, RuntimeError) as error:  # torch makes a RuntimeError of an OSError
        raise ConfigError(f"cannot write {path}: {why_not_written(converted, folder, error)}") from None
    log.info("Converted %s: %d SGD steps, %d env frames", file.path, version, env_frames)
    return path


def _convert_state(state: Mapping[str, Any], conversion: _Conversion, policy_id: int) -> dict[str, Any]:
    """Returns what a checkpoint of this version holds. Raises ConfigError."""
    flags = conversion.config.model
    model = conversion.spec.build(policy_id).model
    assert isinstance(model, TowerActorCritic), "a converted experiment has no custom network"
    weights = convert_weights(
        state["model"], model, conversion.old.version, flags.obs_subtract_mean, flags.obs_scale
    )
    model.load_state_dict(weights.state)
    descent = GradientDescent(conversion.config.learning, {MODEL: model}).state_dict()
    descent["optimizer"]["state"] = convert_moments(
        state.get("optimizer", {}), state["model"], weights, model
    )
    if not descent["optimizer"]["state"]:
        log.warning("The moments of the optimizer are not converted; it starts without")
    return {
        "train_step": int(state["train_step"]),
        "env_steps": int(state["env_steps"]) * conversion.old.frames_per_count,
        "samples": 0,
        "curr_lr": float(state.get("curr_lr") or conversion.config.learning.learning_rate),
        "best_performance": best_performance(state),
        **descent,
    }
