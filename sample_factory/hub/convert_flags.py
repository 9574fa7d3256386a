"""Settings of Sample Factory 1 and 2 as flags of this version. Imports no torch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sample_factory.config.experiment_folder import old_version
from sample_factory.config.flags import ConfigError

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
# Of the network, to be set explicitly: a family may have other defaults.
BUILT_IN_PARTS: Mapping[str, Any] = {
    "core_custom": None,
    "decoder_custom": None,
    "actor_critic_custom": None,
}


class OldSettings(NamedTuple):
    """The settings of an old experiment. version: 1 or 2 of Sample Factory. values: as it saved them."""

    version: int
    values: Mapping[str, Any]

    @property
    def frames_per_count(self) -> int:
        """Env frames for each of the `env_steps` of a checkpoint: the frameskip if it counted steps."""
        counts_frames = self.values.get("summaries_use_frameskip", True)
        return 1 if counts_frames else self.values.get("env_frameskip") or 1


def recognize(values: Mapping[str, Any], source: str) -> OldSettings:
    """Returns the settings with the version that wrote them. source: the file, for error messages.

    Raises ConfigError for settings of this version, and for anything else.
    """
    version = old_version(values)
    if version is None and "hidden_size" in values:
        raise ConfigError(f"{source} is of this version of Sample Factory already; use it as it is")
    if version is None:
        raise ConfigError(f"{source} is not of Sample Factory 1 or 2: there is no hidden_size or rnn_size")
    return OldSettings(version, values)


def new_env_name(old: OldSettings) -> str:
    """Returns the name of the env here, as far as it is known. Raises ConfigError if there is none."""
    name = old.values.get("env")
    if not isinstance(name, str) or not name:
        raise ConfigError("the settings have no env; name it with --env")
    return OLD_MUJOCO_ENVS.get(name, name)


def new_values(old: OldSettings, layers: frozenset[str], env_name: str) -> dict[str, Any]:
    """Returns flag -> value for an experiment that continues the old one; names of version 2 stay aliases.

    layers: names of the tensors of the old network; they say what the settings do not.
    Raises ConfigError for a network that has no counterpart here, naming the flag.
    """
    has_learned_std = any(name.endswith(".learned_stddev") for name in layers)
    is_atari = env_name.startswith("atari_")
    values = {
        **old.values,
        **BUILT_IN_PARTS,
        **(_v1_network(old.values) if old.version == 1 else _v2_network(old.values, layers)),
        "env": env_name,
        # Of actions with a Box and choices the network computed all log-stds, whatever the flag said.
        "adaptive_stddev": not has_learned_std,
        "continuous_tanh_scale": old.values.get("continuous_tanh_scale", 0.0) if has_learned_std else 0.0,
        # The flag had no effect on other envs, and version 1 saved 4 for all.
        "env_framestack": old.values.get("env_framestack", 1) if is_atari else 1,
    }
    if old.values.get("device") == "gpu":
        values["device"] = "auto"
    if is_atari and old.version == 2:
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
