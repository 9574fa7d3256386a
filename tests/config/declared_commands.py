"""The declarations of all commands."""

from sample_factory.__main__ import COMMANDS, declaration

DECLARED = [declaration(name) for name in COMMANDS]
COMMAND_OF = {command.name: command for command in DECLARED}
