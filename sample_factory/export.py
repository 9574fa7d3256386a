"""Writes a trained policy as an ONNX file, which plays without this package and without torch.

python -m sample_factory.export --experiment=my_experiment --export_path=agent.onnx
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.exporting import run_export
from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done, 1 the checkpoint or its network cannot be exported, 2 bad input."""
    return run_command(run_export, argv, env)


if __name__ == "__main__":
    sys.exit(main())
