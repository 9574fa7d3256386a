"""Failures that a command prints for its user instead of a traceback."""

from sample_factory.runtime.failures import Explained


class CommandFailed(Explained, RuntimeError):
    """A command cannot do its work; the message says why. Bad input is a ConfigError instead."""
