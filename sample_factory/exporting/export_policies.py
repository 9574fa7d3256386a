"""Exports the policies of an experiment: loads, converts, compares, writes."""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

from sample_factory.config import VERSION
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import own_spaces
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.played_env import explains_other_env, make_env
from sample_factory.evaluation.policy import build_model, load_weights
from sample_factory.evaluation.policy_choice import PolicyChoice, find_checkpoint, names_file
from sample_factory.exporting.check import CheckResult, compare
from sample_factory.exporting.network import ExportedNetwork, to_onnx
from sample_factory.exporting.signature import describe_actions
from sample_factory.spaces.observations import without_entries


class ExportedPolicy(NamedTuple):
    """A file that was written. check: how far it differs from the trained policy. summary: a few lines."""

    path: Path
    check: CheckResult
    summary: str


def export_policies(config: Config, family: EnvFamily) -> list[ExportedPolicy]:
    """Writes a file for each policy of --policy_index; where agents differ in their spaces, and there is one
    index, for each kind of agents, unless --checkpoint is the path of a file, which has one policy.

    Raises ConfigError for a missing checkpoint or a file that cannot be written, CheckpointError for an
    unusable one, ExportFailed for a network that cannot be exported, and what the env raises.
    """
    policies = config.evaluation.policy_index
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    if len(checkpoints) > 1:
        raise ConfigError(f"--checkpoint has {len(checkpoints)} values; one file is made of one checkpoint")
    for policy in policies:
        find_checkpoint(config, PolicyChoice(policy, checkpoints[0]))  # raises, before the env is made
    with explains_other_env(config):
        env = make_env(config, family, draws=False)
    with contextlib.closing(env):
        num_kinds = len(env.kinds.spaces)
        if len(policies) == 1 and not names_file(checkpoints[0]):
            first = policies[0] - policies[0] % num_kinds
            policies = tuple(range(first, first + num_kinds)) if num_kinds > 1 else policies
        return [
            _export(config, family, env, PolicyChoice(policy, checkpoints[0]), path)
            for policy, path in zip(policies, _paths(config, policies), strict=True)
        ]


def _paths(config: Config, policies: Sequence[int]) -> list[Path]:
    """Returns the file of each policy. Raises ConfigError if its folder cannot be made."""
    given: str | None = config.extra["export"].export_path
    path = config.experiment_dir / "policy.onnx" if given is None else Path(given).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--export_path={given}: {path.parent} is no folder to write to: {error}") from None
    if given is not None and len(policies) == 1:
        return [path]
    return [path.with_name(f"{path.stem}_{policy}.onnx") for policy in policies]


def _export(
    config: Config, family: EnvFamily, env: MultiAgentEnv, choice: PolicyChoice, path: Path
) -> ExportedPolicy:
    flags = config.extra["export"]
    kind = choice.policy_index % len(env.kinds.spaces)
    agents = np.flatnonzero(np.array(env.kinds.of_agent) == kind)
    own = own_spaces(env)[agents[0]]
    spaces = env.kinds.spaces[kind]
    with explains_other_env(config, warns=False):
        model = build_model(config, choice.policy_index, *spaces)
        state = load_weights(config, choice, model)
    model = model.to("cpu").eval()
    view = without_entries(spaces.observation, config.model.critic_only_keys)
    network = ExportedNetwork(model, own, view, flags.export_value)
    exported = to_onnx(network)
    seed = config.run.seed or 0
    check = compare(model, network, exported, env, agents, flags.export_check_steps, seed)
    texts = {
        "sample_factory": VERSION,
        "env": config.env_name,
        "env_frameskip": (config.env.env_frameskip or 1) * family.action_repeat,
        "env_framestack": config.env.env_framestack,
        "experiment": config.run.experiment,
        "policy_index": choice.policy_index,
        "checkpoint": Path(choice.checkpoint).name,  # of a file, not its folders
        "train_steps": state.get("train_step", 0),
        "env_frames": state.get("env_steps", 0),
        "rnn_state_size": model.state_size,
        "observations": json.dumps([entry.describe() for entry in network.observations]),
        "actions": json.dumps(describe_actions(env, own, network.actions)),
    }
    onnx.helper.set_model_props(exported, {name: str(value) for name, value in texts.items()})
    contents: bytes = exported.SerializeToString()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:  # the file is replaced at once, so that there is never a part of one
        temporary.write_bytes(contents)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"--export_path: cannot write {path}: {error.strerror}") from None
    summary = (
        f"{choice}: {path} ({len(contents) / 1e6:.1f} MB)\n"
        f"  inputs   {', '.join(network.inputs)}\n"
        f"  outputs  {', '.join(network.outputs)}\n"
        f"  largest difference to torch {check.largest:.1e} ({check.where}), in {check.steps} steps, "
        f"{check.episodes} episodes"
    )
    return ExportedPolicy(path, check, summary)
