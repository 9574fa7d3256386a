"""Converts an experiment of Sample Factory 1 or 2 into one of this version.

Reads its settings as flags of this version, and its checkpoints.
"""

import dataclasses
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sample_factory.checkpoints.file_format import check_values, why_not_written, write_state
from sample_factory.checkpoints.milestones import TEMPORARY_NAME
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import (
    SAVED,
    SAVED_NAMES,
    experiment_folder,
    old_version,
    read_json,
    saved_path,
)
from sample_factory.config.flags import ConfigError, Layer
from sample_factory.config.merging import build_config
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS, RunFlags
from sample_factory.config.trust import foreign_file, refuse_code, without_foreign_paths
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_info import OwnSpaces
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.wrappers.frame_stack import stacked_space
from sample_factory.evaluation.load_policy import probe_spaces
from sample_factory.hub.convert_population import convert_population
from sample_factory.hub.convert_weights import load_network
from sample_factory.learning.gradient_descent import MODEL, GradientDescent
from sample_factory.models.network_registry import NetworkError
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.log import log
from sample_factory.runtime.safe_files import open_file
from sample_factory.spaces.observations import observation_layout

# Groups: the kind, and what follows the counters, e.g. the metric and its value in the name of the best one.
CHECKPOINT = re.compile(r"(checkpoint|best)_\d+_\d+(.*\.pth(?:\.milestone)?)")
# What loading a scalar of NumPy takes, such as the reward of the best checkpoint: its constructor, under its
# names in versions 1 and 2 of NumPy, and the dtypes of numbers.
SCALAR = np.float64(0).__reduce__()[0]
SCALARS = [(SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
SAFE_GLOBALS: list[Any] = [*SCALARS, np.dtype, *(type(np.dtype(code)) for code in "?bhilqBHILQefd")]

RESNET = "resnet_impala"
V1_RESNET = "resnet_impala_v1"
DOOM_ENCODER = "vizdoom"
# Their observations differ between Gymnasium's v4, which version 2 used, and v5.
OLD_MUJOCO_ENVS = {
    "mujoco_ant": "gym_Ant-v4",
    "mujoco_doublependulum": "gym_InvertedDoublePendulum-v4",
    "mujoco_humanoid": "gym_Humanoid-v4",
    "mujoco_reacher": "gym_Reacher-v4",
    "mujoco_standup": "gym_HumanoidStandup-v4",
}
# What version 1 did without a flag.
V1_VALUES: Mapping[str, Any] = {
    "normalize_input": False,
    "normalize_input_keys": [],
    "normalize_returns": False,
    "value_bootstrap": False,
    "decoder_mlp_layers": [],
    "encoder_conv_mlp_layers": [],
    "optimizer": "adam",
}
COPIES = "vector_env_copies"


def convert_experiment(
    source: Path,
    destination: RunFlags,
    env: str | None = None,
    spaces: OwnSpaces | None = None,
    trust_code: bool = False,
) -> Path:
    """Converts an experiment with all policies, checkpoints and evolved settings; returns the new folder.

    source: folder of the old experiment; it is only read.
    destination: names the new folder, which must not exist.
    env: name of the env in this version, if it differs.
    spaces: spaces of one agent as the env has them; None: an env is made briefly, in another process, to get
        them.
    trust_code: whether to import and call code that the settings name and checkpoints contain, which can run
        any code of their author.

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
    old_env = values.get("env")
    env_name = env or (OLD_MUJOCO_ENVS.get(old_env, old_env) if isinstance(old_env, str) else "")
    if not env_name:
        raise ConfigError("the settings have no env; name it with --env")
    try:
        layer = Layer(f"{SAVED} {path}", new_values(version, values, layers, env_name), foreign)
    except KeyError as error:
        raise ConfigError(f"{path} is incomplete: it has no {error.args[0]}") from None
    config = _new_config(layer, destination, env_name)
    spec = _policy_spec(config, spaces)
    temporary = folder.with_name(f".{folder.name}.converting")
    shutil.rmtree(temporary, ignore_errors=True)  # of a conversion that was killed
    try:
        for file in files:
            state = read_old_state(file, trust_code)
            try:
                converted = _convert_state(state, version, values, config, spec)
            except (ConfigError, NetworkError, ValueError) as error:
                raise ConfigError(f"{file}: {error}") from None
            log.info("Converted %s: %s", file, _write(converted, temporary, file.relative_to(source)))
        convert_population(source, temporary, config)
        os.rename(temporary, folder)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    config.save()  # logs an error instead of raising it
    if not (folder / "cfg.json").is_file():
        shutil.rmtree(folder)
        raise ConfigError(f"cannot write to {folder}: there is no room for its cfg.json")
    return folder


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
    """Returns the description of the network, in float32 on the CPU. spaces: spaces of one agent as the env
    has them; None: an env is made in another process to get them."""
    spaces = spaces or probe_spaces(config, 0)
    stored = stacked_space(observation_layout(spaces.observation).space, config.env.env_framestack)
    return make_policy_spec(config, stored, spaces.action)._replace(device="cpu", precision="fp32")


def _convert_state(
    state: Mapping[str, Any], version: int, values: Mapping[str, Any], config: Config, spec: PolicySpec
) -> dict[str, Any]:
    """Converts the contents of a checkpoint to the form of this version.
    version, values: version and flags of the old experiment. spec: the network of the new one.
    Raises ConfigError, NetworkError or ValueError if the network cannot be built, or the weights do not fit
    it."""
    model = spec.build().model
    assert isinstance(model, TowerActorCritic), "a converted experiment has no custom network"
    flags = config.model
    moments = load_network(state, model, version, flags.obs_subtract_mean, flags.obs_scale)
    descent = GradientDescent(config.learning, {MODEL: model}).state_dict()
    descent["optimizer"]["state"] = moments
    if not moments:
        log.warning("The moments of the optimizer are not converted; it starts without")
    # Counters are env frames here; old ones may be env steps.
    frames_per_count = 1 if values.get("summaries_use_frameskip", True) else values.get("env_frameskip") or 1
    return {
        "train_step": int(state["train_step"]),
        "env_steps": int(state["env_steps"]) * frames_per_count,
        "samples": 0,
        "curr_lr": float(state.get("curr_lr") or config.learning.learning_rate),
        **descent,
    }


def _write(state: Mapping[str, Any], folder: Path, old: Path) -> str:
    """Writes a converted checkpoint into the new folder; returns its file name.
    state: contents as this version saves them. old: path of the old checkpoint, relative to the old
        experiment.
    Raises ConfigError if the file cannot be written."""
    kind, ending = CHECKPOINT.fullmatch(old.name).groups()  # type: ignore[union-attr]
    path = folder / old.with_name(f"{kind}_{state['train_step']:09d}_{state['env_steps']}{ending}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(state, path, path.with_name(TEMPORARY_NAME))
    except (OSError, RuntimeError, ValueError) as error:  # torch makes a RuntimeError of an OSError
        raise ConfigError(f"cannot write {path}: {why_not_written(state, folder, error)}") from None
    return path.name


def read_settings(folder: Path) -> tuple[Path, dict[str, Any], int]:
    """Reads the settings of an experiment of version 1 or 2; returns their file, flag -> value, and the
    version. Raises ConfigError for settings of this version, and for anything else."""
    if not folder.is_dir():
        raise ConfigError(f"--source={folder}: there is no such folder; name the folder of an old experiment")
    path = saved_path(folder)
    if path is None:
        raise ConfigError(f"--source={folder} is no experiment: there is no {' or '.join(SAVED_NAMES)} in it")
    values = read_json(path)
    version = old_version(values)
    if version is not None:
        return path, values, version
    if "hidden_size" in values:
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    raise ConfigError(f"{path} is not of Sample Factory 1 or 2: there is no hidden_size or rnn_size")


def find_files(folder: Path) -> list[Path]:
    """Returns the paths of all checkpoints and milestones, sorted by policy and number of SGD steps. Raises
    ConfigError if there are none."""
    masks = ("checkpoint_p[0-9]*/*.pth", "checkpoint_p[0-9]*/milestones/*.pth*")
    paths = [path for mask in masks for path in folder.glob(mask)]
    found = [path for path in sorted(paths) if CHECKPOINT.fullmatch(path.name)]
    if not found:
        raise ConfigError(f"--source={folder} has no checkpoints: there is no checkpoint_p0/checkpoint_*.pth")
    return found


def read_old_state(path: Path, trust_code: bool = False) -> dict[str, Any]:
    """Reads a checkpoint on the CPU: tensors, numbers, and scalars of NumPy.
    trust_code: whether to load objects of any type, which can run code of the file's author.
    Raises ConfigError for a file that cannot be read, and without `trust_code` for other types."""
    try:
        with torch.serialization.safe_globals(SAFE_GLOBALS), open_file(path, "rb") as file:
            state = torch.load(file, map_location="cpu", weights_only=not trust_code)
    except pickle.UnpicklingError as error:
        refused = re.search(r"(?:GLOBAL|global) (\S+)", str(error))
        if trust_code or refused is None:
            raise ConfigError(f"{path}: it is damaged or no checkpoint") from None
        raise ConfigError(
            f"{path}: it holds a {refused[1]}, and loading it could run code; add --trust_code if you trust "
            "its author"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path} is damaged or no checkpoint: {reason[:200]}") from None
    keys = state if isinstance(state, Mapping) else ()
    missing = [key for key in ("model", "train_step", "env_steps") if key not in keys]
    if missing:
        raise ConfigError(f"{path} is no checkpoint of Sample Factory: it has no {', '.join(missing)}")
    try:
        counts = {name: int(state[name]) for name in ("train_step", "env_steps")}
        check_values({**state, **counts}, path.stat().st_size)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged or no checkpoint: {error}") from None
    if any(name.startswith("towers.") for name in state["model"]):
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    return dict(state)


def new_values(version: int, old: Mapping[str, Any], layers: frozenset[str], env_name: str) -> dict[str, Any]:
    """Returns flag -> value for an experiment that continues the old one; flags of version 2 may keep their
    old names, which are aliases.

    old: settings that the old version has saved.
    layers: names of the tensors of the old network, which show what the settings leave open, such as the kind
        of encoder.
    Raises ConfigError, naming the flag, for a network that has no counterpart in this version.
    """
    has_learned_std = any(name.endswith(".learned_stddev") for name in layers)
    is_atari = env_name.startswith("atari_")
    values = {
        **old,
        # Set explicitly, because a family may have other defaults.
        **dict.fromkeys(("core_custom", "decoder_custom", "actor_critic_custom")),
        **(_v1_network(old) if version == 1 else _v2_network(old, layers)),
        "env": env_name,
        # Of actions with a Box and choices the network computed all log-stds, whatever the flag said.
        "adaptive_stddev": not has_learned_std,
        "continuous_tanh_scale": old.get("continuous_tanh_scale", 0.0) if has_learned_std else 0.0,
        # The flag had no effect on other envs, and version 1 saved 4 for all.
        "env_framestack": old.get("env_framestack", 1) if is_atari else 1,
    }
    if old.get("device") == "gpu":
        values["device"] = "auto"
    if is_atari and version == 2:
        values["reward_clip"] = 1.0  # by a wrapper of the env
    return values


def _v1_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that describe the encoder of version 1, and values that turn off what version 1
    lacked, such as normalisation. Raises ConfigError for an encoder that has no counterpart."""
    kind = values["encoder_type"]
    custom = values.get("encoder_custom")
    network = {**V1_VALUES, "encoder_custom": custom}
    if custom not in (None, DOOM_ENCODER):
        raise ConfigError(
            f"--encoder_custom={custom} of version 1 cannot be converted; only {DOOM_ENCODER} and built-in "
            "encoders can"
        )
    subtype = values["encoder_subtype"]
    if kind == "mlp" and subtype == "mlp_mujoco":
        num_layers = 2 + values["encoder_extra_fc_layers"]
        network["encoder_mlp_layers"] = [values["hidden_size"]] * num_layers
        network["encoder_subtype"] = "convnet_simple"  # else it would set the number of layers
    elif kind == "resnet" and subtype == RESNET:
        network["encoder_subtype"] = RESNET if values["nonlinearity"] == "tanh" else V1_RESNET
    elif kind != "conv":
        raise ConfigError(
            f"--encoder_type={kind} --encoder_subtype={subtype} of version 1 cannot be converted"
        )
    return network


def _v2_network(values: Mapping[str, Any], layers: frozenset[str]) -> dict[str, Any]:
    """Returns the flags that describe the encoder of version 2. layers: names of the tensors of the old
    network, which show whether the encoder is the one for Doom."""
    is_doom = any(".".join(name.split(".")[1:2]) == "basic_encoder" for name in layers)
    is_resnet = values["encoder_conv_architecture"] == RESNET
    return {
        "encoder_type": "resnet" if is_resnet else "conv",
        "encoder_extra_fc_layers": 0,  # version 2's are in encoder_conv_mlp_layers
        "encoder_custom": DOOM_ENCODER if is_doom else None,
    }
