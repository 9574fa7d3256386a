"""Damaged and unusable checkpoints. Imports no torch, which the main process never loads."""

import zipfile
from pathlib import Path
from typing import IO

from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.safe_files import open_file


class CheckpointError(CommandFailed):
    """Raised when checkpoints exist, but none can be used."""


def check_undamaged(file: IO[bytes]) -> None:
    """Verifies the checksums of a checkpoint file, which torch writes but does not verify. Reads the whole
    file, 0.2 s per GB. If the file is damaged or no checkpoint, raises ValueError or an exception of
    `zipfile`, of any type."""
    if not zipfile.is_zipfile(file):
        raise ValueError("the file is empty, cut off, or no checkpoint")
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        # Otherwise, a small file could fill the memory.
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise ValueError("the file is compressed, and checkpoints are not")
        if sum(part.file_size for part in parts) > file.seek(0, 2):
            raise ValueError("the file is damaged: its parts overlap")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the file is damaged: the checksum of {damaged} in it is wrong")


def is_damaged(path: Path) -> bool:
    """Returns whether a checkpoint file cannot be read or is damaged."""
    try:
        with open_file(path, "rb") as file:
            check_undamaged(file)
    except Exception:  # whatever a damaged file makes `zipfile` raise
        return True
    return False
