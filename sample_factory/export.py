"""Writes a trained policy as an ONNX file, which plays without this package and without torch.

python -m sample_factory.export --experiment=my_experiment --export_path=agent.onnx
"""

import functools
import sys

from sample_factory.exporting import EXPORT as COMMAND
from sample_factory.launch.command_line import run

main = functools.partial(run, COMMAND)

if __name__ == "__main__":
    sys.exit(main())
