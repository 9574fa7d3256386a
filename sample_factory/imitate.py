"""Imitates an env's bots: python -m sample_factory.imitate --env=generals_8x8 --experiment=clone"""

import sys

from sample_factory.imitation.command import COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
