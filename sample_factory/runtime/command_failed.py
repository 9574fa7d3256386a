"""The failures that a user of a command is to read about, rather than a traceback."""


class CommandFailed(RuntimeError):
    """What was asked for cannot be done; the message says why. Bad input is a ConfigError instead."""
