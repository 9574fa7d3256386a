"""Tensors of torch and arrays of JAX on any device: to arrays of NumPy in host memory, and back."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def to_host(value: Any) -> Any:
    """Returns a value with arrays of NumPy in place of tensors, also within mappings and tuples.

    Arrays may share the memory of tensors of the host. Tensors on a GPU are copied to pinned memory, with one
    wait for all of them. Anything that is no array is returned as it is.
    """
    devices: set[Any] = set()  # GPUs whose tensors are on their way
    host = _changed(value, lambda leaf: _array(leaf, devices))
    if devices:
        import torch

        for device in devices:
            torch.cuda.current_stream(device).synchronize()
    return host


def _array(value: Any, devices: set[Any]) -> Any:
    """Returns an array of NumPy that holds the values of an array once its device, which is added to
    `devices` if it is a GPU, has caught up."""
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
    """Returns the device of the first tensor of torch in a value; None if it has none."""
    devices: list[Any] = []
    _changed(value, lambda leaf: devices.append(leaf.device) if is_tensor(leaf) else None)
    return devices[0] if devices else None


def to_env(actions: Any, device: Any) -> Any:
    """Returns actions as an env takes them: tensors on a device of torch, or arrays as they are if it is
    None."""
    if device is None:
        return actions
    import torch

    return _changed(actions, lambda array: torch.as_tensor(array, device=device))


def no_grad() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which torch, if it is imported, records no graph. A simulator with a network would
    keep the graph of all its steps."""
    torch = sys.modules.get("torch")
    context = vars(torch).get("no_grad", contextlib.nullcontext) if torch else contextlib.nullcontext
    return context()


def fill(target: Any, values: np.ndarray) -> None:
    """Overwrites a tensor of torch or an array of NumPy in place; other arrays cannot be written.

    values: as many as the target has, in any shape.
    """
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
