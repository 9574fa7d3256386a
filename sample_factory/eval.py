"""Measures checkpoints over many episodes, with many envs in parallel.

python -m sample_factory.eval --experiment=my_experiment --eval_episodes=1000 --json=results.json
"""

import functools
import sys

from sample_factory.evaluation.evaluate import EVAL as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
