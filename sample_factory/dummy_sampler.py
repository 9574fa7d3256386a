"""Random actions on every core, without a network: the upper bound on throughput.

python -m sample_factory.dummy_sampler --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16
"""

import functools
import sys

from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
