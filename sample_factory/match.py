"""Lets two policies play against each other, and reports which one is better and how certain that is.

python -m sample_factory.match --env=my_duel --experiment=new --opponent_experiment=old --num_matches=200

Past against present: --opponent_checkpoint=milestone:12345 of the same experiment.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 a checkpoint cannot be used, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.evaluation.match import parse_arguments, run_match
        from sample_factory.runtime.log import setup_logging

        setup_logging("match")
        contestants = parse_arguments(arguments)
        run_match(contestants)

    return run_command(command, argv, env)


if __name__ == "__main__":
    sys.exit(main())
