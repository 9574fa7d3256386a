"""The flags of the command `export`, and whether its packages are installed. Imports no torch."""

from dataclasses import dataclass

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.packages import is_installed, missing_package

ENDING = ".onnx"


@dataclass(frozen=True)
class ExportFlags:
    """Exporting a policy to ONNX."""

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


def check_flags(config: Config) -> None:
    """Raises ConfigError for a wrong --export_path or a missing package."""
    path = config.extra["export"].export_path
    if path is not None and not path.endswith(ENDING):
        raise ConfigError(f"--export_path={path} should end with {ENDING}")
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if not is_installed(package):
            raise missing_package("exporting", package, "onnx")
