"""Steps envs with random actions: python -m sample_factory.dummy_sampler --env=doom_benchmark"""

import sys

from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
