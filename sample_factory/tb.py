"""Starts TensorBoard on the experiments that match masks: python -m sample_factory.tb '*doom*' 'battle_?'"""

import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command
from sample_factory.runner.watch_curves import watch


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 ended by Ctrl+C, 2 bad input, otherwise the exit code of TensorBoard."""
    return run_command(watch, argv)


if __name__ == "__main__":
    sys.exit(main())
