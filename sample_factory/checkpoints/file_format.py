"""What stands in a checkpoint file."""

import zipfile
from pathlib import Path
from typing import Any

import torch


def read_state(path: Path) -> dict[str, Any]:
    """The contents, by checksum; runs no code of the file's. Raises whatever a damaged one leads to."""
    if not zipfile.is_zipfile(path):
        raise ValueError("the file is empty, cut off, or no checkpoint")
    # torch writes checksums, but takes a tensor with a wrong one. This takes 0.2 s per GB.
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the file is damaged: the checksum of {damaged} in it is wrong")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__} and no training state")
    return state
