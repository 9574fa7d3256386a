"""Starts TensorBoard on the experiments that match masks: python -m sample_factory.tb '*doom*' 'battle_?'"""

import functools
import sys

from sample_factory.launch.command_line import run
from sample_factory.runner.watch_curves import TB as COMMAND

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
