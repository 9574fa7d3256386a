"""Lets a human play, alone or in a match with trained agents.

python -m sample_factory.play_doom --env=doom_basic

A match that was started with --num_humans=1 prints the address at which it waits:

python -m sample_factory.play_doom --env=doom_duel --join=127.0.0.1:5029
"""

import functools
import sys

from sample_factory.envs.doom import PLAY_DOOM as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
