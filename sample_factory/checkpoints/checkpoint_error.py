"""Damaged and unusable checkpoints. Imports no torch, which the main process never loads."""

import zipfile
from pathlib import Path

from sample_factory.runtime.failures import CommandFailed


class CheckpointError(CommandFailed):
    """Checkpoints exist, but none can be used."""


def check_undamaged(path: Path) -> None:
    """Raises ValueError, or what `zipfile` raises, if a checkpoint file is damaged.

    Reads the whole file, 0.2 s per GB: torch writes checksums, but does not verify them.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("the file is empty, cut off, or no checkpoint")
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the file is damaged: the checksum of {damaged} in it is wrong")


def is_damaged(path: Path) -> bool:
    """Returns whether `check_undamaged` raises."""
    try:
        check_undamaged(path)
    except Exception:  # whatever a damaged file makes `zipfile` raise
        return True
    return False
