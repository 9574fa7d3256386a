"""Lets two policies play against each other, and reports which one is better and how certain that is.

python -m sample_factory.match --env=my_duel --experiment=new --opponent_experiment=old --num_matches=200

Past against present: --opponent_checkpoint=milestone:12345 of the same experiment.
"""

import functools
import sys

from sample_factory.evaluation.match_command import COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
