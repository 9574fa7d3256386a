"""Lets a human play Doom: python -m sample_factory.play_doom --env=doom_basic"""

import sys

from sample_factory.families.doom import PLAY_DOOM as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
