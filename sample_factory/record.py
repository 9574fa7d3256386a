"""Records a Minari data set: python -m sample_factory.record --experiment=my_experiment --out=games"""

import sys

from sample_factory.imitation.record import RECORD as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
