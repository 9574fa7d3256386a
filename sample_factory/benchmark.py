"""Measures simulation, sampling and training on this machine, and reports what limits the speed.

python -m sample_factory.benchmark --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16

It takes all flags of training, and some of its own, which --help lists.
"""

import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 a stage failed, 2 bad input, 130 interrupted."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.benchmarking.benchmark import benchmark
        from sample_factory.benchmarking.benchmark_flags import parse_arguments

        benchmark(parse_arguments(arguments))

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
