"""Measures the speed of this machine: python -m sample_factory.benchmark --env=doom_benchmark"""

import sys

from sample_factory.benchmarking.benchmark_flags import BENCHMARK as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
