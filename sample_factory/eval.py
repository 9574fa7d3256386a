"""Measures checkpoints over many episodes, with many envs in parallel.

python -m sample_factory.eval --experiment=my_experiment --eval_episodes=1000 --json=results.json
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 an env or a process failed, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.evaluation.evaluate import run_eval

        run_eval(arguments)

    return run_command(command, argv, env)


if __name__ == "__main__":
    sys.exit(main())
