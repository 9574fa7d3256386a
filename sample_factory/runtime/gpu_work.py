"""Copies to and from a GPU that nothing waits for longer than it must, and CUDA graphs.

For a CPU the same calls copy nothing.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Result = TypeVar("Result")
Capture = Callable[[Callable[[], Result]], Callable[[], Result]]

# Before a capture: libraries choose their kernels, and what is made once is made, in the first calls.
WARM_UP_RUNS = 2


def host_array(shape: tuple[int, ...], dtype: np.dtype, device: torch.device) -> np.ndarray:
    """Memory for copies to or from the device, uninitialised. For a GPU it is pinned: those are faster, and
    go on while this process does something else.
    """
    if device.type == "cpu":
        return np.empty(shape, dtype)
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy().view(dtype).reshape(shape)


class Uploads:
    """Copies of arrays on the device, made beside whatever else it does: on a stream of their own."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Returns when all are there, for use on the default stream; on a CPU, tensors over the same memory.

        The arrays had better be made by `host_array`, the large ones anyway.
        """
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self._stream is None:
            return tensors
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            tensors = {name: host.to(self._device, non_blocking=True) for name, host in tensors.items()}
        self._stream.synchronize()
        for tensor in tensors.values():
            # Or else its memory could be that of another copy while kernels that read it are still waiting.
            tensor.record_stream(torch.cuda.default_stream(self._device))
        return tensors


class Downloads:
    """Copies of tensors on the host, waited for once instead of once for each."""

    def __init__(self, device: torch.device):
        self._device = device
        self._host: dict[str, Tensor] = {}

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Contiguous arrays. On a GPU they are valid until the next call, and shapes stay those of the first
        one; on a CPU they are the tensors' memory.
        """
        if self._device.type == "cpu":
            return {name: tensor.detach().contiguous().numpy() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if name not in self._host:
                self._host[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host[name].copy_(tensor.detach(), non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return {name: self._host[name].numpy() for name in tensors}


class GraphCapture:
    """Makes CUDA graphs, which start all kernels of a function at once, of functions that run on the device.

    The graphs share memory, so that the results of one are gone when another one runs.
    """

    def __init__(self, device: torch.device):
        self._device = device
        # Memory belongs to a stream, so that graphs of one stream can share it.
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Result]) -> Callable[[], Result]:
        """A function that does again what `run` does now, from and into the same memory, and returns the
        same tensors, rewritten. Random numbers are new each time.

        Raises RuntimeError if `run` does what a graph cannot, such as to wait for the device.
        """
        usual = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        # Entered so that it is also restored: a capture that fails does not leave its stream (torch 2.13).
        with torch.cuda.device(self._device), torch.cuda.stream(usual):
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UP_RUNS):
                    run()
                with _waiting_is_an_error():
                    run()
            usual.wait_stream(self._stream)
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                result = run()

        def replay() -> Result:
            graph.replay()
            return result

        return replay


@contextlib.contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    """Better found out before a capture: one that fails can leave generators and memory in its state."""
    former = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(former)
