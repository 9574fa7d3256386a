"""Reads and writes checkpoint files: torch's zip archives of tensors and plain numbers."""

import errno
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sample_factory.checkpoints.checkpoint_error import check_undamaged


def read_state(path: Path) -> dict[str, Any]:
    """Returns the contents of a checkpoint, on the CPU. Runs no code that the file contains.

    Raises ValueError, or what torch raises, if the file is damaged or is no checkpoint.
    """
    check_undamaged(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's own message has 1,000 characters
        raise ValueError(
            "it holds more than tensors and numbers, and loading the rest could run code"
        ) from None
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__} and no training state")
    return state


def check_fits(saved: Any, own: Mapping[str, Any]) -> None:
    """Raises ValueError, with the first difference, unless both have the same tensors in the same shapes.

    saved: the weights of a model in a checkpoint. own: the state_dict of the model.
    """
    if not isinstance(saved, Mapping):
        raise ValueError("it has no weights of a model")
    differences = []
    for name in [*own, *(name for name in saved if name not in own)]:
        there, here = (
            f"of shape {list(state[name].shape)}" if name in state else "missing" for state in (saved, own)
        )
        if there != here:
            differences.append(f"{name} is {there} there and {here} here")
    if differences:
        more = f"; {len(differences) - 1} more tensors differ" if len(differences) > 1 else ""
        raise ValueError(f"it is of another network or version: {differences[0]}{more}")


def write_state(state: Mapping[str, Any], path: Path, temporary: Path) -> None:
    """Writes to the file `temporary`, then renames it, so that a file named `path` is always complete.

    Raises OSError or RuntimeError; see `why_not_written`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(temporary, "wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def why_not_written(state: Mapping[str, Any], folder: Path, error: Exception) -> str:
    """Returns the cause of an error of `write_state` in one line. folder: any on the same disk."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__  # torch's own words for a full disk are "unexpected pos 768 vs 662"
    if cause is None:
        return " ".join(str(error).split())
    if cause.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(cause)
    sizes = f"it needs about {_size_text(_num_bytes(state))}"
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # the disk has been removed
        return f"{cause.strerror}: {sizes}"
    return f"{cause.strerror}: {sizes}, {_size_text(free)} are free"


def _size_text(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


def _num_bytes(value: Any) -> int:
    """Returns the size of all tensors in nested mappings and sequences."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return 0
    return sum(_num_bytes(item) for item in value)
