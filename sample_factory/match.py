"""Lets two policies play: python -m sample_factory.match --experiment=new --opponent_experiment=old"""

import sys

from sample_factory.evaluation.match_command import COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
