"""Exports the policies of an experiment: loads, converts, compares, writes."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_info import own_spaces
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.played_env import explains_other_env, make_env
from sample_factory.evaluation.policy import build_model, load_weights
from sample_factory.evaluation.policy_choice import PolicyChoice, find_checkpoint
from sample_factory.exporting.check import CheckResult, compare
from sample_factory.exporting.export_flags import ENDING, ExportFlags
from sample_factory.exporting.network import ExportedNetwork, to_onnx
from sample_factory.exporting.signature import Signature, action_meanings, make_metadata, make_signature


class ExportedPolicy(NamedTuple):
    """A file that was written. check: how far it differs from the trained policy."""

    path: Path
    choice: PolicyChoice
    signature: Signature
    num_bytes: int
    check: CheckResult

    def summary(self) -> str:
        """Describes it in a few lines."""
        signature = self.signature
        check = self.check
        return (
            f"{self.choice}: {self.path} ({self.num_bytes / 1e6:.1f} MB)\n"
            f"  inputs   {', '.join(signature.inputs)}\n"
            f"  outputs  {', '.join(signature.outputs)}\n"
            f"  largest difference to torch {check.largest:.1e} ({check.where}), in {check.steps} steps, "
            f"{check.episodes} episodes"
        )


def export_policies(config: Config, family: EnvFamily) -> list[ExportedPolicy]:
    """Writes a file for each policy of --policy_index; where agents differ in their spaces, and there is one
    index, for each kind of agents.

    Raises ConfigError for a missing checkpoint or a file that cannot be written, CheckpointError for an
    unusable one, ExportFailed for a network that cannot be exported, and what the env raises.
    """
    policies = config.evaluation.policy_index
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    if len(checkpoints) > 1:
        raise ConfigError(f"--checkpoint has {len(checkpoints)} values; one file is made of one checkpoint")
    for policy in policies:
        find_checkpoint(config, PolicyChoice(policy, checkpoints[0]))  # raises, before the env is made
    with contextlib.ExitStack() as closed_at_end:
        with explains_other_env(config):
            env = closed_at_end.enter_context(contextlib.closing(make_env(config, family, draws=False)))
        num_kinds = len(env.kinds.spaces)
        if len(policies) == 1:
            first = policies[0] - policies[0] % num_kinds
            policies = tuple(range(first, first + num_kinds)) if num_kinds > 1 else policies
        choices = [PolicyChoice(policy, checkpoints[0]) for policy in policies]
        paths = _paths(config, policies)
        return [
            _export(config, family, env, choice, path) for choice, path in zip(choices, paths, strict=True)
        ]


def _paths(config: Config, policies: Sequence[int]) -> list[Path]:
    """Returns the file of each policy. Raises ConfigError if its folder cannot be made."""
    given: str | None = config.extra["export"].export_path
    path = config.experiment_dir / f"policy{ENDING}" if given is None else Path(given).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--export_path={given}: {path.parent} is no folder to write to: {error}") from None
    if given is not None and len(policies) == 1:
        return [path]
    return [path.with_name(f"{path.stem}_{policy}{ENDING}") for policy in policies]


def _export(
    config: Config, family: EnvFamily, env: MultiAgentEnv, choice: PolicyChoice, path: Path
) -> ExportedPolicy:
    flags: ExportFlags = config.extra["export"]
    kind = choice.policy_index % len(env.kinds.spaces)
    agents = np.flatnonzero(np.array(env.kinds.of_agent) == kind)
    own = own_spaces(env)[agents[0]]
    spaces = env.kinds.spaces[kind]
    with explains_other_env(config, warns=False):
        model = build_model(config, choice.policy_index, *spaces)
        state = load_weights(config, choice, model)
    model = model.to("cpu").eval()
    signature = make_signature(own, spaces.observation, model.state_size, flags.export_value)
    network = ExportedNetwork(model, signature)
    exported = to_onnx(network)
    seed = config.run.seed or 0
    result = compare(model, network, exported, env, agents, flags.export_check_steps, seed)
    meanings = action_meanings(env, own, signature)
    metadata = make_metadata(config, family, choice, signature, state, meanings)
    onnx.helper.set_model_props(exported, metadata)
    contents: bytes = exported.SerializeToString()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:  # the file is replaced at once, so that there is never a part of one
        temporary.write_bytes(contents)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"--export_path: cannot write {path}: {error.strerror}") from None
    return ExportedPolicy(path, choice, signature, len(contents), result)
