"""Exporting a policy to ONNX: the command `export`, and the function call sample_factory.export_onnx.

Imports neither torch nor onnx: bad flags are reported at once.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sample_factory.config.command import FILMS, OF_PLAYING, Command, counts_episodes
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_trained_family
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.evaluation.policy_choice import LATEST, flags_of_call
from sample_factory.launch.objects_of_call import with_names

if TYPE_CHECKING:
    from sample_factory.exporting.export_policies import ExportedPolicy


@dataclass(frozen=True)
class ExportFlags:
    """Exporting a policy to ONNX. Declares the flags that only the command `export` has."""

    export_path: str | None = flag(
        None,
        "file to write, which ends with .onnx; policy_INDEX.onnx in the folder of the run if left out. With "
        "several policies each file gets its index, e.g. agent_1.onnx for agent.onnx",
        metavar="FILE",
    )
    export_value: bool = flag(
        False, "add the output `value`: the expected sum of discounted rewards of the training"
    )
    export_check_steps: int = flag(
        128,
        "steps of the env in which the exported policy is compared with the trained one",
        at_least=1,
        at_most=1_000_000,
    )


def _check(config: Config) -> None:
    """Raises ConfigError if the name of the file does not end with .onnx, if --export_value is set but the
    critic needs observations that the policy does not get, or if onnx, onnxscript or onnxruntime is
    missing."""
    path = config.extra["export"].export_path
    if path is not None and not path.endswith(".onnx"):
        raise ConfigError(f"--export_path={path} should end with .onnx")
    keys = config.model.critic_only_keys
    if config.extra["export"].export_value and keys:
        raise ConfigError(
            f"--export_value: the value of this policy depends on {', '.join(keys)}, which only the critic "
            "gets and the exported policy does not; leave it out"
        )
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if not is_installed(package):
            raise missing_package("exporting", package, "onnx")


def run_export(config: Config) -> None:
    """Runs the command `export`: exports, and prints a few lines about each file. Raises ConfigError for
    wrong flags or a missing checkpoint, CheckpointError for an unusable one, ExportFailed for a network that
    cannot be exported."""
    _check(config)
    from sample_factory.exporting.export_policies import export_policies  # loads torch

    for exported in export_policies(config):
        print(exported.summary, flush=True)


EXPORT = Command(
    name="export",
    experiment="saved",
    description="Writes a trained policy, with its normalisation of observations and its recurrent state, as "
    "an ONNX file, and compares it with the trained one in episodes of the env.",
    examples="""
    # Export the latest checkpoint.
    --experiment=basic --export_path=basic.onnx
    # Export the best checkpoint of the second policy, with its values.
    --experiment=basic --policy_index=1 --load_checkpoint_kind=best --export_value=True
    # Compare both policies for longer.
    --experiment=basic --export_check_steps=5000
    """,
    run=run_export,
    sections={"export": ExportFlags},
    reads=OF_PLAYING - {"levels"},
    instead={**counts_episodes("export_check_steps"), **FILMS},
)


def export_onnx(
    experiment: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    train_dir: str | os.PathLike[str] | None = None,
    *,
    policy_index: int | None = None,
    checkpoint: str | os.PathLike[str] = LATEST,
    value: bool = False,
    **flags: Any,
) -> "list[ExportedPolicy]":
    """Writes a trained policy as an ONNX file, after comparing both in the env.

    For example:

        (exported,) = sample_factory.export_onnx("cartpole", "cartpole.onnx", value=True)
        print(exported.path, exported.check.largest)

    The command `export` does the same; inputs, outputs and metadata of the file are described in
    sample_factory/exporting/README.md.

    Args:
        experiment: Name of an experiment in `train_dir`, its folder, or the file of a checkpoint in it.
        path: File to write; by default policy_INDEX.onnx in the experiment's folder.
        train_dir: Folder of all experiments; by default ./train_dir.
        policy_index: Index of the policy, in an experiment with several; by default 0. If agents differ in
            their spaces, the policies that were trained with it for the other kinds are exported too.
        checkpoint: "latest", "best", "milestone:VERSION" or the path of a file, unless `experiment` is one.
        value: Whether the file has the output `value`.
        flags: Other flags of the env and of the command, such as `export_check_steps` and `seed`.

    Returns:
        An ExportedPolicy for each file, with `path` and `check.largest`, the largest difference.

    Raises:
        ConfigError: There is no such experiment or checkpoint, a flag is wrong, or onnx, onnxscript or
            onnxruntime is not installed. A subclass of ValueError. No file is written if this or one of the
            following is raised.
        CheckpointError: The checkpoint cannot be used.
        ExportFailed: The network cannot be exported, or its outputs differ by more than 1e-4.
    """
    keywords = {
        **flags_of_call(experiment, train_dir, policy_index, checkpoint),
        "export_path": None if path is None else os.fspath(path),
        "export_value": value,
        **flags,
    }
    config = parse_config([], resolve_trained_family, EXPORT, keywords=with_names(keywords))
    _check(config)
    from sample_factory.exporting.export_policies import export_policies  # loads torch and onnx

    return export_policies(config)
