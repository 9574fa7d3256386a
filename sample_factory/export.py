"""Writes a policy as an ONNX file: python -m sample_factory.export --experiment=my_experiment"""

import sys

from sample_factory.exporting import EXPORT as COMMAND
from sample_factory.launch.command_line import main_of

main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
