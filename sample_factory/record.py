"""Records games of a trained policy as a Minari data set, with many envs in parallel.

python -m sample_factory.record --experiment=my_experiment --episodes=100 --out=games
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 an env, a process or the disk failed, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.imitation.record_policy import record

        record(arguments)

    return run_command(command, argv, env)


if __name__ == "__main__":
    sys.exit(main())
