"""Trains a policy to play like an env's scripted players, or as in recorded games, and saves a checkpoint.

python -m sample_factory.imitate --env=generals_8x8 --experiment=clone --teachers=expander

`python -m sample_factory.train --transfer_from=clone ...` then starts with its weights.
"""

import functools
import sys

from sample_factory.imitation.command import COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
