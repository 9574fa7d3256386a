"""Copies between host and GPU that overlap with other work, and CUDA graphs. On a CPU nothing is copied."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Result = TypeVar("Result")
Capture = Callable[[Callable[[], Result]], Callable[[], Result]]

# Runs before a capture: in their first calls, libraries choose kernels and allocate memory that they keep.
WARM_UP_RUNS = 2


def host_array(shape: tuple[int, ...], dtype: np.dtype, device: torch.device) -> np.ndarray:
    """Returns uninitialised host memory for copies to or from the device. For a GPU it is pinned: copies are
    faster, and run while this process does other work."""
    if device.type == "cpu":
        return np.empty(shape, dtype)
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy().view(dtype).reshape(shape)


class Uploads:
    """Copies arrays to the device on a separate CUDA stream, so that copies overlap with other work."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Copies arrays to the device and waits for the copies; returns tensors for the default stream.

        On a CPU the tensors share the memory of the arrays. Large arrays should come from `host_array`:
        copies of arrays that are not pinned do not overlap with other work.
        """
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self._stream is None:
            return tensors
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            tensors = {name: host.to(self._device, non_blocking=True) for name, host in tensors.items()}
        self._stream.synchronize()
        for tensor in tensors.values():
            # Otherwise the memory could be reused for another copy before all kernels that read it have run.
            tensor.record_stream(torch.cuda.default_stream(self._device))
        return tensors


class Downloads:
    """Copies tensors to the host, with one wait for all of them."""

    def __init__(self, device: torch.device):
        self._device = device
        self._host: dict[str, Tensor] = {}

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Copies tensors to contiguous arrays. On a CPU the arrays share the memory of contiguous tensors.
        On a GPU the arrays are overwritten by the next call, and every call must pass the same shapes."""
        if self._device.type == "cpu":
            return {name: tensor.detach().contiguous().numpy() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if name not in self._host:
                self._host[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host[name].copy_(tensor.detach(), non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return {name: self._host[name].numpy() for name in tensors}


class GraphCapture:
    """Makes CUDA graphs of functions on the device. A graph starts all kernels of its function at once.
    The graphs share memory: replaying one graph overwrites the results of all graphs."""

    def __init__(self, device: torch.device):
        self._device = device
        # Memory belongs to a stream, so that graphs of one stream can share it.
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Result]) -> Callable[[], Result]:
        """Captures the kernels of `run`. Returns a function that replays them with the same input and output
        memory, and returns the same tensors, overwritten. Each replay draws new random numbers.

        Raises RuntimeError if `run` does something that a graph cannot do, such as waiting for the device.
        """
        usual = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        # Entering the usual stream restores it at the end: torch 2.13 does not when a capture fails.
        with torch.cuda.device(self._device), torch.cuda.stream(usual):
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UP_RUNS):
                    run()
                with _error_on_wait():
                    run()
            usual.wait_stream(self._stream)
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                result = run()

        def replay() -> Result:
            graph.replay()
            return result

        return replay


@contextlib.contextmanager
def _error_on_wait() -> Iterator[None]:
    """Returns a block in which waiting for the device raises RuntimeError, for a trial before a capture. The
    capture would fail too, but could leave random generators and memory marked as being captured."""
    previous = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # Torch warns that this mode does not find every wait.
        warnings.filterwarnings("ignore", "Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(previous)
