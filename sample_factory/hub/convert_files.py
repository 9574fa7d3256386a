"""Reads experiments of Sample Factory 1 and 2: checkpoints, and settings as flags of this version."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sample_factory.config.experiment_folder import SAVED_NAMES, old_version, read_json
from sample_factory.config.flags import ConfigError

# Groups: the kind, and what follows the counters, e.g. the metric and its value in the name of the best one.
CHECKPOINT = re.compile(r"(checkpoint|best)_\d+_\d+(.*\.pth(?:\.milestone)?)")
# A scalar of NumPy, such as the reward of the best checkpoint, is saved as its dtype and its bytes.
NUMPY_1_SCALAR = "numpy.core.multiarray.scalar"
NUMPY_2_SCALAR = "numpy._core.multiarray.scalar"

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


def read_settings(folder: Path) -> tuple[Path, dict[str, Any], int]:
    """Returns the file of settings, its values, and the version that wrote it: 1 or 2.

    Raises ConfigError for settings of this version, and for anything else.
    """
    if not folder.is_dir():
        raise ConfigError(f"--source={folder}: there is no such folder; name the folder of an old experiment")
    path = next((folder / name for name in SAVED_NAMES if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(f"--source={folder} is no experiment: there is no {' or '.join(SAVED_NAMES)} in it")
    values = read_json(path)
    version = old_version(values)
    if version is None and "hidden_size" in values:
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    if version is None:
        raise ConfigError(f"{path} is not of Sample Factory 1 or 2: there is no hidden_size or rnn_size")
    return path, values, version


def find_files(folder: Path) -> list[Path]:
    """Returns all checkpoints, by policy and number of SGD steps. Raises ConfigError if there are none."""
    masks = ("checkpoint_p[0-9]*/*.pth", "checkpoint_p[0-9]*/milestones/*.pth*")
    paths = [path for mask in masks for path in folder.glob(mask)]
    found = [path for path in sorted(paths) if CHECKPOINT.fullmatch(path.name)]
    if not found:
        raise ConfigError(f"--source={folder} has no checkpoints: there is no checkpoint_p0/checkpoint_*.pth")
    return found


def read_old_state(path: Path, trust_code: bool = False) -> dict[str, Any]:
    """Returns the contents of a checkpoint on the CPU: tensors, numbers, and scalars of NumPy.

    trust_code: load whatever the file holds, which can run code of its author.
    Raises ConfigError for a file that cannot be read or that holds anything else.
    """
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            state = torch.load(path, map_location="cpu", weights_only=not trust_code)
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
    if any(name.startswith("towers.") for name in state["model"]):
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    return dict(state)


def _numpy_scalars() -> list[Any]:
    """Returns what loading a scalar of NumPy needs: its constructor, under its names in both versions of
    NumPy, and the dtypes of numbers."""
    scalar = np.float64(0).__reduce__()[0]
    dtypes = [type(np.dtype(code)) for code in "?bhilqBHILQefd"]
    return [(scalar, NUMPY_1_SCALAR), (scalar, NUMPY_2_SCALAR), np.dtype, *dtypes]


def new_env_name(values: Mapping[str, Any]) -> str:
    """Returns the name of the env here, as far as it is known. Raises ConfigError if there is none."""
    name = values.get("env")
    if not isinstance(name, str) or not name:
        raise ConfigError("the settings have no env; name it with --env")
    return OLD_MUJOCO_ENVS.get(name, name)


def new_values(version: int, old: Mapping[str, Any], layers: frozenset[str], env_name: str) -> dict[str, Any]:
    """Returns flag -> value for an experiment that continues the old one; names of version 2 stay aliases.

    old: the settings that the old version has saved. layers: names of the tensors of the old network; they
    say what the settings do not. Raises ConfigError for a network that has no counterpart here, naming the
    flag.
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
    """Returns the flags of the encoder and what version 1 lacked. Raises ConfigError."""
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
    """Returns the flags of the encoder. layers: see `new_values`."""
    is_doom = any(".".join(name.split(".")[1:2]) == "basic_encoder" for name in layers)
    is_resnet = values["encoder_conv_architecture"] == RESNET
    return {
        "encoder_type": "resnet" if is_resnet else "conv",
        "encoder_extra_fc_layers": 0,  # those of version 2 are in encoder_conv_mlp_layers
        "encoder_custom": DOOM_ENCODER if is_doom else None,
    }
