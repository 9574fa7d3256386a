"""Failures that a command prints for its user instead of a traceback."""


class CommandFailed(RuntimeError):
    """A command cannot do its work; the message says why. Bad input is a ConfigError instead."""
