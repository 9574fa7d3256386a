"""The error of unusable checkpoints. Imports no torch."""

from sample_factory.runtime.failures import CommandFailed


class CheckpointError(CommandFailed):
    """Checkpoints exist, but none can be used."""
