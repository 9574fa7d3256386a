"""Measures simulation, sampling and training on this machine, and reports what limits the speed.

python -m sample_factory.benchmark --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16

It takes all flags of training, and some of its own, which --help lists.
"""

import functools
import sys

from sample_factory.benchmarking.benchmark_flags import BENCHMARK as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
