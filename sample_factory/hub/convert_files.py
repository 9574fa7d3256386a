"""Reads experiment folders and checkpoints of Sample Factory 1 and 2."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sample_factory.config.experiment_folder import SAVED_NAMES, read_json
from sample_factory.config.flags import ConfigError

POLICY_FOLDER = re.compile(r"checkpoint_p(\d+)")
CHECKPOINT = re.compile(r"(checkpoint|best)_(\d+)_(\d+)(.*)\.pth(?:\.milestone)?")
# A scalar of NumPy, such as the reward of the best checkpoint, is saved as its dtype and its bytes.
NUMPY_1_SCALAR = "numpy.core.multiarray.scalar"
NUMPY_2_SCALAR = "numpy._core.multiarray.scalar"


class OldFile(NamedTuple):
    """A checkpoint of version 1 or 2.

    kind: "checkpoint" or "best". suffix: of the name of the best one, its metric and value.
    """

    path: Path
    policy_id: int
    kind: str
    suffix: str
    is_milestone: bool


def read_settings(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the file of settings and its values. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError(f"--source={folder}: there is no such folder; name the folder of an old experiment")
    for name in SAVED_NAMES:
        if (folder / name).is_file():
            return folder / name, read_json(folder / name)
    raise ConfigError(f"--source={folder} is no experiment: there is no {' or '.join(SAVED_NAMES)} in it")


def find_files(folder: Path) -> list[OldFile]:
    """Returns all checkpoints, those of a policy by the number of SGD steps. Raises ConfigError if there are
    none."""
    found = []
    for path in sorted(folder.glob("checkpoint_p*/**/*.pth*")):
        inside = path.relative_to(folder).parts
        policy = POLICY_FOLDER.fullmatch(inside[0])
        name = CHECKPOINT.fullmatch(path.name)
        is_milestone = inside[1:-1] == ("milestones",)
        if policy and name and (is_milestone or len(inside) == 2):
            found.append(OldFile(path, int(policy[1]), name[1], name[4], is_milestone))
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
        raise ConfigError(f"{path}: {_why_not_loaded(str(error), trust_code)}") from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path} is damaged or no checkpoint: {reason[:200]}") from None
    missing = [key for key in ("model", "train_step", "env_steps") if key not in _keys(state)]
    if missing:
        raise ConfigError(f"{path} is no checkpoint of Sample Factory: it has no {', '.join(missing)}")
    if any(name.startswith("towers.") for name in state["model"]):
        raise ConfigError(f"{path} is of this version of Sample Factory already; use it as it is")
    return dict(state)


def _keys(state: Any) -> Mapping[str, Any]:
    return state if isinstance(state, Mapping) else {}


def _why_not_loaded(message: str, trust_code: bool) -> str:
    refused = re.search(r"(?:GLOBAL|global) (\S+)", message)
    if trust_code or refused is None:
        return "it is damaged or no checkpoint"
    return (
        f"it holds a {refused[1]}, and loading that could run code; add --trust_code if you trust its author"
    )


def _numpy_scalars() -> list[Any]:
    """Returns what loading a scalar of NumPy needs: its constructor, under its names in both versions of
    NumPy, and the dtypes of numbers."""
    scalar = np.float64(0).__reduce__()[0]
    dtypes = [type(np.dtype(code)) for code in "?bhilqBHILQefd"]
    return [(scalar, NUMPY_1_SCALAR), (scalar, NUMPY_2_SCALAR), np.dtype, *dtypes]
