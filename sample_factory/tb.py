"""Starts TensorBoard on the experiments that match masks: python -m sample_factory.tb '*doom*' 'battle_?'"""

import sys

from sample_factory.launch.command_line import main_of
from sample_factory.runner.start_tensorboard import TB as COMMAND

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
