"""Tensors of torch and arrays of JAX on any device: to arrays of NumPy in host memory, and back."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def to_host(value: Any) -> Any:
    """Converts all torch tensors and JAX arrays in a value to NumPy, also within mappings and tuples.
    Anything else is returned unchanged.

    Arrays may share the memory of tensors on the CPU. Tensors on a GPU are copied to pinned memory, with one
    synchronization for all of them.
    """
    devices: set[Any] = set()  # GPUs whose tensors are on their way
    host = _changed(value, lambda leaf: _array(leaf, devices))
    if devices:
        import torch

        for device in devices:
            torch.cuda.current_stream(device).synchronize()
    return host


def _array(value: Any, devices: set[Any]) -> Any:
    """Converts one tensor or JAX array to NumPy; returns anything else unchanged.

    The copy from a torch GPU is asynchronous: its device is added to `devices`, and the array holds the
    values once the caller has synchronized with that device.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    if not is_tensor(value):
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    tensor = value.detach()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none
        tensor = tensor.float()
    if tensor.is_cuda:
        devices.add(tensor.device)
    # torch takes the memory of a copy that nobody waits for from its cache of pinned memory.
    return tensor.to("cpu", non_blocking=tensor.is_cuda).numpy()


def device_of(value: Any) -> Any:
    """Returns the device of the first torch tensor in a value, also within mappings and tuples; None without
    tensors."""
    devices: list[Any] = []
    _changed(value, lambda leaf: devices.append(leaf.device) if is_tensor(leaf) else None)
    return devices[0] if devices else None


def to_env(actions: Any, device: Any) -> Any:
    """Converts actions, an array or mappings and tuples of arrays, to torch tensors on a device; returns them
    unchanged if `device` is None."""
    if device is None:
        return actions
    import torch

    return _changed(actions, lambda array: torch.as_tensor(array, device=device))


def no_grad() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which torch, if imported, records no graph: a simulator that contains a network
    would keep the graph of all its steps."""
    torch = sys.modules.get("torch")
    context = vars(torch).get("no_grad", contextlib.nullcontext) if torch else contextlib.nullcontext
    return context()


def fill(target: Any, values: np.ndarray) -> None:
    """Overwrites a torch tensor or a NumPy array in place. Does nothing to arrays of JAX, which are
    immutable. values: as many numbers as the target has, in any shape."""
    if is_tensor(target):
        import torch

        with torch.inference_mode(target.is_inference()):  # such a tensor can be written in that mode only
            target[:] = target.new_tensor(values).reshape(target.shape)
    elif isinstance(target, np.ndarray):
        target[:] = values.reshape(target.shape)


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a tensor of torch, without importing torch."""
    # An env can return a tensor only if torch is imported, which may be under way in another thread.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, vars(torch).get("Tensor", ()))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a value with `change(leaf)` in place of each leaf of its mappings and tuples."""
    if isinstance(value, tuple):
        return tuple(_changed(inner, change) for inner in value)
    if isinstance(value, Mapping):
        return {key: _changed(inner, change) for key, inner in value.items()}
    return change(value)
