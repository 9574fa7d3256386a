"""Measures checkpoints over many episodes: python -m sample_factory.eval --experiment=my_experiment"""

import sys

from sample_factory.evaluation.evaluate import EVAL as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
