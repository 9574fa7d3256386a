"""Writes a trained policy as an ONNX file, which plays without this package and without torch.

python -m sample_factory.export --experiment=my_experiment --export_path=agent.onnx
"""

import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 the checkpoint or its network cannot be exported, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.config.commands import EXPORT
        from sample_factory.config.parsing import parse_config
        from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
        from sample_factory.exporting import ExportFlags, check_flags
        from sample_factory.runtime.log import setup_logging

        own = {"export": ExportFlags}
        config = parse_config(
            arguments, resolve_trained_family, evaluation=True, extra_sections=own, command=EXPORT
        )
        check_flags(config)
        setup_logging("export")
        from sample_factory.exporting.export_policies import export_policies  # loads torch

        for exported in export_policies(config, resolve_family(config.env_name)):
            print(exported.summary, flush=True)

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
