"""Loading a policy as a function call: sample_factory.load_policy."""

import os
from typing import Any

import gymnasium as gym

from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import find_experiment
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import as_arguments, in_words_of_python, parse_config
from sample_factory.envs.env_registry import (
    EnvFamily,
    UnknownEnvError,
    resolve_family,
    resolve_trained_family,
)
from sample_factory.envs.own_spaces import OwnSpaces, probe_own_spaces
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.wrappers.frame_stack import stacked_space
from sample_factory.evaluation.loaded_policy import LoadedPolicy
from sample_factory.evaluation.policy import load_trained_policy
from sample_factory.evaluation.policy_choice import LATEST, chosen_policy
from sample_factory.runtime.child import ChildFailed
from sample_factory.spaces.observations import observation_layout


def load_policy(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    *,
    policy_index: int | None = None,
    checkpoint: str | os.PathLike[str] = LATEST,
    deterministic: bool = False,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    cfg: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> LoadedPolicy:
    """Loads a trained policy, which acts with raw observations of the env: see `LoadedPolicy`.

    For example `policy = load_policy("cartpole")`, then `action = policy.act(observation)`.

    experiment: name of an experiment in `train_dir` (by default ./train_dir), its folder, or the file of a
        checkpoint. The settings of a file are in the cfg.json of a folder above it, or in `cfg`.
    policy_index: which policy, of an experiment with several; 0 by default, and that of the file's folder.
    checkpoint: "latest", "best", "milestone:VERSION" or the path of a file; not beside a file.
    deterministic: take the most likely action, and the mean of a continuous one, instead of a random one.
    observation_space, action_space: of one agent, as the env has them. By default an env is made briefly, in
        another process, to get them. With both, the env need not be known here, nor its package installed.
    cfg: the cfg.json of a checkpoint file without an experiment folder.
    flags: other flags, such as `device="gpu"` (by default the CPU, which is faster for a few envs), or flags
        of the env's family.

    Raises ConfigError (a ValueError) if there is no such experiment (it names those beside it), no such
    checkpoint, or a flag is wrong; CheckpointError for a checkpoint that cannot be used.
    """
    try:
        named = find_experiment(experiment, train_dir, cfg)
        choice = chosen_policy(named, policy_index, checkpoint)
        needs_env = observation_space is None or action_space is None
        resolve = resolve_trained_family if needs_env else _family_or_none
        keywords = {**named.keywords, "eval_deterministic": deterministic, **flags}
        is_experiment = "cfg" not in named.keywords
        config = parse_config(as_arguments(keywords), resolve, is_experiment, cfg_is_saved=True)
        family = resolve(config.env_name)
        spaces = _spaces(config, family, choice.policy_index, observation_space, action_space)
        num_frames = config.env.env_framestack
        stored = observation_layout(spaces.observation).space
        if num_frames > 1:
            stored = stacked_space(stored, num_frames)
        policy = load_trained_policy(config, choice, stored, spaces.action)
    except (ConfigError, UnknownEnvError) as error:
        raise in_words_of_python(error) from None

    def make_env(render_mode: str | None) -> Any:
        return family.make(config.namespace(), EnvConfig(0, 0, 0), render_mode)

    return LoadedPolicy(policy, spaces, num_frames, make_env)


def _family_or_none(env_name: str) -> EnvFamily:
    """Returns the family of an env; of one that this process does not know, a family that makes no env."""
    try:
        return resolve_family(env_name)
    except (UnknownEnvError, ImportError) as error:
        reason = str(error)

    def refuse(full_env_name: str) -> None:
        raise ConfigError(f"make_env: {reason}")

    return EnvFamily(env_name, refuse, None, {})


def _spaces(
    config: Config,
    family: EnvFamily,
    policy_index: int,
    observation_space: gym.Space[Any] | None,
    action_space: gym.Space[Any] | None,
) -> OwnSpaces:
    if observation_space is not None and action_space is not None:
        return OwnSpaces(observation_space, action_space)
    try:
        probed = probe_own_spaces(family, config.namespace(), policy_index)
    except ChildFailed as failure:
        raise ConfigError(
            f"env {config.env_name} cannot be made to get its spaces ({failure.reason}); give "
            "observation_space and action_space"
        ) from failure
    return OwnSpaces(
        probed.observation if observation_space is None else observation_space,
        probed.action if action_space is None else action_space,
    )
