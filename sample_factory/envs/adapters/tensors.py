"""Tensors of torch and arrays of JAX on any device: to arrays of NumPy in host memory, and back."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Path = tuple[Any, ...]  # to a value in mappings and tuples


def to_host(value: Any) -> Any:
    """Returns a value with arrays of NumPy in place of tensors, also within mappings and tuples.

    Arrays may share the memory of the tensors. Anything else is returned as it is.
    """
    return _changed(value, _leaf_to_host)


def _changed(value: Any, change: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    """Returns a value with `change(leaf, path)` in place of each leaf of its mappings and tuples."""
    if isinstance(value, tuple):
        return tuple(_changed(inner, change, (*path, i)) for i, inner in enumerate(value))
    if isinstance(value, Mapping):
        return {key: _changed(inner, change, (*path, key)) for key, inner in value.items()}
    return change(value, path)


def _is_of_torch(value: Any) -> bool:
    # An env can return a tensor only if torch is imported, which may be under way in another thread.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, vars(torch).get("Tensor", ()))


def no_grad() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which torch, if it is imported, records no graph. A simulator with a network would
    keep the graph of all its steps."""
    torch = sys.modules.get("torch")
    context = vars(torch).get("no_grad", contextlib.nullcontext) if torch else contextlib.nullcontext
    return context()


def _leaf_to_host(value: Any, path: Path = ()) -> Any:
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    if _is_of_torch(value):
        value = value.detach().cpu()
        return np.asarray(value.float() if str(value.dtype) == "torch.bfloat16" else value)
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def fill(target: Any, values: np.ndarray) -> None:
    """Overwrites a tensor of torch or an array of NumPy in place; other arrays cannot be written.

    values: as many as the target has, in any shape.
    """
    if _is_of_torch(target):
        import torch

        with torch.inference_mode(target.is_inference()):  # such a tensor can be written in that mode only
            target[:] = target.new_tensor(values).reshape(target.shape)
    elif isinstance(target, np.ndarray):
        target[:] = values.reshape(target.shape)


class Crossing:
    """The way of arrays between an env and the host memory of this process.

    Tensors of torch on a GPU are copied to pinned memory, which is kept, on a stream of their own, with one
    wait for all tensors of a step. Other tensors are viewed, or copied by their library.
    """

    def __init__(self) -> None:
        self._device: Any = None  # torch.device of the env; None: it takes arrays of NumPy
        self._is_known = False
        self._pinned: dict[Path, Any] = {}  # tensors in host memory, by their path in what the env returns
        self._stream: Any = None

    def to_host(self, values: Any) -> Any:
        """Returns what `to_host` does, valid until the next call with values of the same paths.

        The first call is for observations: if they are tensors of torch, so are the actions of `to_env`, on
        the device of the first.
        """
        host = _changed(values, self._start)
        self._is_known = True
        if self._stream is not None:
            self._stream.synchronize()
        return host

    def _start(self, value: Any, path: Path) -> Any:
        """Starts the copy of a tensor from a GPU; `to_host` waits for it."""
        is_of_torch = _is_of_torch(value)
        if is_of_torch and not self._is_known:
            self._device = self._device or value.device
        if not is_of_torch or not value.is_cuda or (self._stream and self._stream.device != value.device):
            return _leaf_to_host(value)
        import torch

        self._stream = self._stream or torch.cuda.Stream(value.device)
        dtype = torch.float32 if value.dtype == torch.bfloat16 else value.dtype  # NumPy has no bfloat16
        pinned = self._pinned.get(path)
        if pinned is None or (pinned.shape, pinned.dtype) != (value.shape, dtype):
            pinned = self._pinned[path] = torch.empty(value.shape, dtype=dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(value.device))
        with torch.cuda.stream(self._stream):
            pinned.copy_(value.detach(), non_blocking=True)
        return pinned.numpy()

    def to_env(self, actions: Any) -> Any:
        """Returns actions as the env takes them: arrays, or tensors of torch on its device."""
        if self._device is None:
            return actions
        import torch

        return _changed(actions, lambda array, path: torch.as_tensor(array, device=self._device))
