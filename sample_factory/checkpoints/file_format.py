"""Reads and writes checkpoint files: torch's zip archives of tensors and plain numbers."""

import errno
import math
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sample_factory.checkpoints.checkpoint_error import check_undamaged
from sample_factory.config.flags import shortened
from sample_factory.runtime.safe_files import new_file, open_file

MAX_VALUES = 200_000  # tensors, numbers and texts in a checkpoint; a network of 1,000 layers has 10,000
# Sum of the tensors of a checkpoint, in multiples of the size of the file: tensors may share memory.
MAX_EXPANSION = 4
FREE_BYTES = 2**28  # of tensors that are allowed in any file
ACTION_SCALE = "scale_actions"  # buffer of an action head
MAX_COUNT = 10**15  # of steps or frames: a million per second for 30 years
MAX_VERSION = 2**31 - 1  # of SGD steps: trajectory buffers have them as int32
COUNTS = ("train_step", "env_steps", "samples", "skipped_steps")
NUMBERS = ("curr_lr", "best_performance")
# Names of the running statistics of a network that are never negative.
STATISTICS = re.compile(r"(observation_normalizers|returns_normalizer)\.(.+\.)?(variance|count)")


def read_state(path: Path) -> dict[str, Any]:
    """Reads the state in a checkpoint file, with tensors on the CPU. Runs no code that the file contains.
    Raises an exception if the file is damaged or is no checkpoint: ValueError, OSError, or the exception of
    torch or `zipfile`, of any type."""
    with open_file(path, "rb") as file:
        check_undamaged(file)
        file.seek(0)
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # torch's own message has 1,000 characters
            raise ValueError(
                "it holds more than tensors and numbers, and loading the rest could run code"
            ) from None
        size = os.fstat(file.fileno()).st_size
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__} and no training state")
    check_values(state, size)
    return state


def check_values(state: Mapping[str, Any], file_size: float = math.inf) -> None:
    """Checks the state of a checkpoint for values that no training writes. Raises ValueError for tensors that
    are much larger than the file, NaN, negative statistics, and impossible counts. file_size: in bytes.

    Infinity is allowed, since a buffer of a user's network may be a bound or a mask; `check_fits` and
    `check_optimizer` check the tensors that must be finite.
    """
    pending: list[tuple[Any, Any]] = [("state", state)]
    free = MAX_EXPANSION * file_size + FREE_BYTES
    for _ in range(MAX_VALUES):
        if not pending:
            break
        name, value = pending.pop()
        if isinstance(value, torch.Tensor):
            free -= value.numel() * value.element_size()
            if free < 0:
                raise ValueError(f"a {_kind_of(value)} in it is larger than what is stored of it")
            _check_tensor(str(name), value)
        elif isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, (list, tuple)):
            pending += [("", item) for item in value]
    else:  # also where a list contains itself
        raise ValueError(f"it holds more than {MAX_VALUES:,} values")
    weights = {} if state.get("model") is None else state["model"]
    if not isinstance(weights, Mapping) or not all(isinstance(w, torch.Tensor) for w in weights.values()):
        raise ValueError("its `model` should be a dict of tensors by name")
    for name in COUNTS:
        count = state.get(name, 0)
        limit = MAX_VERSION if name == "train_step" else MAX_COUNT
        if type(count) is not int or not 0 <= count <= limit:
            raise ValueError(f"{name} = {shortened(repr(count))} in it is not a possible count")
    for name in NUMBERS:
        number = state.get(name)
        is_number = isinstance(number, Real) and math.isfinite(number)
        if number is not None and not is_number:
            raise ValueError(f"{name} = {shortened(repr(number))} in it is not a finite number")


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Checks a tensor of a state. Raises ValueError if it is sparse, quantised or without data, if it
    contains NaN, or if it is a variance or count with a negative entry. name: the tensor's name in its
    state_dict."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        raise ValueError(f"a {_kind_of(tensor)} in it is sparse, quantised or without data")
    if (tensor.is_floating_point() or tensor.is_complex()) and tensor.isnan().any():
        raise ValueError(f"a {_kind_of(tensor)} in it has NaN")
    if STATISTICS.fullmatch(name) and (tensor < 0).any():
        raise ValueError(f"{name} in it is negative")


def _kind_of(tensor: torch.Tensor) -> str:
    return f"tensor of shape {shortened(str(list(tensor.shape)))}"


def check_fits(saved: Any, module: nn.Module) -> None:
    """Checks that saved weights, a state_dict, fit a module. Raises ValueError, with the first difference, if
    names or shapes of tensors differ, if a parameter is not finite, or if actions are scaled differently, so
    that the weights would mean other actions."""
    if not isinstance(saved, Mapping):
        raise ValueError("it has no weights of a model")
    own = module.state_dict()
    differences = []
    for name in [*own, *(name for name in saved if name not in own)]:
        there, here = (
            f"of shape {list(state[name].shape)}" if name in state else "missing" for state in (saved, own)
        )
        if there != here:
            differences.append(f"{name} is {there} there and {here} here")
        elif name.endswith(ACTION_SCALE) and not torch.equal(saved[name].cpu(), own[name].cpu()):
            differences.append(f"{name} is of other bounds of the actions")
    if differences:
        more = f"; {len(differences) - 1} more tensors differ" if len(differences) > 1 else ""
        raise ValueError(f"it is of another network or version: {differences[0]}{more}")
    for name, _ in module.named_parameters(remove_duplicate=False):
        if not saved[name].isfinite().all():
            raise ValueError(f"the weight {name} in it is not finite")


def write_state(state: Mapping[str, Any], path: Path, temporary: Path) -> None:
    """Writes a state to the file `temporary`, then renames this file to `path`, which is therefore always
    complete.

    Raises ValueError, and writes nothing, if `read_state` would refuse the file; OSError or RuntimeError if
    the file cannot be written, see `why_not_written`.
    """
    check_values(state)
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(temporary, "wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def why_not_written(state: Mapping[str, Any], folder: Path, error: Exception) -> str:
    """Returns a line that explains an error of `write_state`; for a full disk, with the bytes needed and
    free. folder: any folder on the same disk."""
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
    """Returns the size in bytes of all tensors in nested mappings and sequences."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return 0
    return sum(_num_bytes(item) for item in value)
