"""Records games of a trained policy as a Minari data set, with many envs in parallel.

python -m sample_factory.record --experiment=my_experiment --episodes=100 --out=games
"""

import functools
import sys

from sample_factory.imitation.record_policy import RECORD as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
