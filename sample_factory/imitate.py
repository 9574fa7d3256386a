"""Trains a policy to play like an env's scripted players, or as in recorded games, and saves a checkpoint.

python -m sample_factory.imitate --env=generals_8x8 --experiment=clone --teachers=expander

`python -m sample_factory.train --transfer_from=clone ...` then starts with its weights.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done, 1 the checkpoint cannot be written, 2 bad input, 130 interrupted."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.imitation import parse_arguments
        from sample_factory.runtime.log import setup_logging

        setup_logging("imitate")
        config = parse_arguments(arguments)
        from sample_factory.imitation.imitate import imitate  # loads torch

        imitate(config)

    return run_command(command, argv, env)


if __name__ == "__main__":
    sys.exit(main())
