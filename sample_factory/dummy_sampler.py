"""Random actions on every core, without a network: the upper bound on throughput.

python -m sample_factory.dummy_sampler --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16
"""

import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 an env or a process failed, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.benchmarking.random_sampler import parse_arguments, sample
        from sample_factory.runtime.log import setup_logging

        setup_logging("main")
        config = parse_arguments(arguments)
        print("\n".join(sample(config)))

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
