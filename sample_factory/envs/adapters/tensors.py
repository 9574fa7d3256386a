"""Tensors of torch and arrays of JAX on any device: to arrays of NumPy in host memory, and back."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Returns whether a value is an array of another library than NumPy."""
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)


def _is_of_torch(value: Any) -> bool:
    # An env can return a tensor only if torch is imported, which may be under way in another thread.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, vars(torch).get("Tensor", ()))


def to_host(value: Any) -> Any:
    """Returns a value with arrays of NumPy in place of tensors, also within mappings and tuples.

    Arrays may share the memory of the tensors. Anything else is returned as it is.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, tuple):
        return tuple(map(to_host, value))
    if isinstance(value, Mapping):
        return {key: to_host(inner) for key, inner in value.items()}
    if not is_tensor(value):
        return value
    return np.asarray(value.detach().cpu() if _is_of_torch(value) else value)


class Crossing:
    """The way of arrays between an env and the host memory of this process.

    Tensors of torch on a GPU are copied to pinned memory, which is kept, on a stream of their own, with one
    wait for all tensors of a step. Other tensors are viewed, or copied by their library.
    """

    def __init__(self) -> None:
        self._device: Any = None  # torch.device of the env; None: it takes arrays of NumPy
        self._is_known = False
        self._pinned: dict[str, Any] = {}  # tensors in host memory, by their path in what the env returns
        self._stream: Any = None

    def to_host(self, values: Any) -> Any:
        """Returns what `to_host` does, valid until the next call. Each value of a path has the same shape.

        The first call is for observations: if they are tensors of torch, so are the actions of `to_env`.
        """
        if not self._is_known:
            self._is_known = True
            self._device = _torch_device(values)
        host = self._copy(values, "")
        if self._stream is not None:
            self._stream.synchronize()
        return host

    def _copy(self, value: Any, path: str) -> Any:
        """Starts the copies from a GPU; `to_host` waits for them."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, tuple):
            return tuple(self._copy(inner, f"{path}/{i}") for i, inner in enumerate(value))
        if isinstance(value, Mapping):
            return {key: self._copy(inner, f"{path}/{key}") for key, inner in value.items()}
        if not _is_of_torch(value) or not value.is_cuda:
            return to_host(value)
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(value.device)
        if path not in self._pinned:
            self._pinned[path] = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(value.device))
        with torch.cuda.stream(self._stream):
            self._pinned[path].copy_(value.detach(), non_blocking=True)
        return self._pinned[path].numpy()

    def to_env(self, actions: Any) -> Any:
        """Returns actions as the env takes them: arrays, or tensors of torch on its device."""
        if self._device is None:
            return actions
        if isinstance(actions, Mapping):
            return {key: self.to_env(part) for key, part in actions.items()}
        if isinstance(actions, tuple):
            return tuple(map(self.to_env, actions))
        import torch

        return torch.as_tensor(actions, device=self._device)


def _torch_device(values: Any) -> Any:
    """Returns the device of the first tensor of torch in values; None if there is none."""
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, tuple):
        devices = map(_torch_device, values)
        return next((device for device in devices if device is not None), None)
    return values.device if _is_of_torch(values) else None
