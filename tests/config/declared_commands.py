"""The declarations of all commands."""

import importlib

from sample_factory.__main__ import COMMANDS

DECLARED = [importlib.import_module(f"sample_factory.{module}").COMMAND for module in COMMANDS]
COMMAND_OF = {command.name: command for command in DECLARED}
