"""Networks that act outside of a run: built from the flags, with the weights of a checkpoint."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.file_format import check_fits
from sample_factory.checkpoints.milestones import PREFIXES
from sample_factory.checkpoints.store import Checkpoints, read_checkpoint
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.evaluation.policy_choice import PolicyChoice, find_checkpoint
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.spaces.observations import observation_layout


def load_weights(config: Config, choice: PolicyChoice, model: ActorCritic) -> Mapping[str, Any]:
    """Loads the chosen checkpoint into a model; returns the contents of the checkpoint file. With "latest" or
    "best", an older file is loaded if the newest is damaged. Raises ConfigError if the checkpoint does not
    exist, CheckpointError if it cannot be used."""
    path = find_checkpoint(config, choice)
    if choice.checkpoint in PREFIXES:
        keep = config.monitoring.keep_checkpoints
        checkpoints = Checkpoints(config.experiment_dir, choice.policy_index, keep)
        state = checkpoints.load(choice.checkpoint)  # an older one if the newest is damaged
        assert state is not None, "there is a file, or find_checkpoint raises"
    else:
        state = read_checkpoint(path)
    saved = model.own_weights(state.get("model") or {})
    try:
        check_fits(saved, model)
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint of {config.experiment_dir} ({choice}) does not fit the model that cfg.json and "
            f"the flags describe: {error}. Leave out the flags of the model and the env that you typed"
        ) from None
    model.load_state_dict(saved)
    return state


def build_model(
    config: Config, policy_index: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> ActorCritic:
    """Builds the network that acts, in float32, with random weights. It runs on the CPU, which is faster for
    one env, unless --device=gpu is typed.
    observation_space, action_space: spaces of one agent.
    Raises ValueError, ConfigError or NetworkError if the network cannot be made, e.g. because spaces and
    flags do not fit together, or the device is not available."""
    device = "gpu" if "device" in config.typed and config.run.device == "gpu" else "cpu"
    stored = observation_layout(observation_space).space
    spec = make_policy_spec(config, stored, action_space).to_act()
    spec = spec._replace(device=device, precision="fp32")
    try:
        return spec.build(policy_index).model
    except RuntimeError as error:
        raise ConfigError(str(error)) from None
