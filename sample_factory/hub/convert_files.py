"""Reads experiment folders and checkpoints of Sample Factory 1 and 2."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sample_factory.config.experiment_folder import read_json
from sample_factory.config.experiment_names import SAVED_NAMES
from sample_factory.config.flags import ConfigError

# Groups: the kind, and what follows the counters, e.g. the metric and its value in the name of the best one.
CHECKPOINT = re.compile(r"(checkpoint|best)_\d+_\d+(.*\.pth(?:\.milestone)?)")
# A scalar of NumPy, such as the reward of the best checkpoint, is saved as its dtype and its bytes.
NUMPY_1_SCALAR = "numpy.core.multiarray.scalar"
NUMPY_2_SCALAR = "numpy._core.multiarray.scalar"


def read_settings(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the file of settings and its values. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError(f"--source={folder}: there is no such folder; name the folder of an old experiment")
    for name in SAVED_NAMES:
        if (folder / name).is_file():
            return folder / name, read_json(folder / name)
    raise ConfigError(f"--source={folder} is no experiment: there is no {' or '.join(SAVED_NAMES)} in it")


def find_files(folder: Path) -> list[Path]:
    """Returns all checkpoints, by policy and number of SGD steps. Raises ConfigError if there are none."""
    masks = ("checkpoint_p[0-9]*/*.pth", "checkpoint_p[0-9]*/milestones/*.pth*")
    paths = [path for mask in masks for path in folder.glob(mask)]
    found = [path for path in sorted(paths) if CHECKPOINT.fullmatch(path.name)]
    if not found:
        raise ConfigError(f"--source={folder} has no checkpoints: there is no checkpoint_p0/checkpoint_*.pth")
    return found


def read_old_state(path: Path, trust_code: bool = False) -> dict[str, Any]:
    """Returns the contents of a checkpoint on the CPU: tensors, numbers, and scalars of NumPy.

    trust_code: load whatever the file holds, which can run code of its author.
    Raises ConfigError for a file that cannot be read or that holds anything else.
    """
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            state = torch.load(path, map_location="cpu", weights_only=not trust_code)
    except pickle.UnpicklingError as error:
        refused = re.search(r"(?:GLOBAL|global) (\S+)", str(error))
        if trust_code or refused is None:
            raise ConfigError(f"{path}: it is damaged or no checkpoint") from None
        raise ConfigError(
            f"{path}: it holds a {refused[1]}, and loading it could run code; add --trust_code if you trust "
            "its author"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path} is damaged or no checkpoint: {reason[:200]}") from None
    keys = state if isinstance(state, Mapping) else ()
    missing = [key for key in ("model", "train_step", "env_steps") if key not in keys]
    if missing:
        raise ConfigError(f"{path} is no checkpoint of Sample Factory: it has no {', '.join(missing)}")
    if any(name.startswith("towers.") for name in state["model"]):
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    return dict(state)


def _numpy_scalars() -> list[Any]:
    """Returns what loading a scalar of NumPy needs: its constructor, under its names in both versions of
    NumPy, and the dtypes of numbers."""
    scalar = np.float64(0).__reduce__()[0]
    dtypes = [type(np.dtype(code)) for code in "?bhilqBHILQefd"]
    return [(scalar, NUMPY_1_SCALAR), (scalar, NUMPY_2_SCALAR), np.dtype, *dtypes]
