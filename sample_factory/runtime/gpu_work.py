"""Copies to and from a GPU that nothing waits for longer than it must, and CUDA graphs.

For a CPU the same calls cost nothing: they hand on the memory that they are given.
"""

import math
from typing import Callable, Mapping, TypeVar

import numpy as np
import torch
from torch import Tensor

Result = TypeVar("Result")
Capture = Callable[[Callable[[], Result]], Callable[[], Result]]

# Before a capture: libraries choose their kernels and get their memory in the first calls.
WARM_UP_RUNS = 3


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
        """Returns when all are there; on a CPU, tensors over the same memory.

        The arrays had better be made by `host_array`, the large ones anyway.
        """
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self._stream is None:
            return tensors
        with torch.cuda.stream(self._stream):
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
        self._host: dict[str, np.ndarray] = {}

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Contiguous arrays. On a GPU they are valid until the next call, and shapes stay those of the first
        one; on a CPU they are the tensors' memory.
        """
        if self._device.type == "cpu":
            return {name: tensor.detach().contiguous().numpy() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if name not in self._host:
                dtype = torch.empty((), dtype=tensor.dtype).numpy().dtype
                self._host[name] = host_array(tuple(tensor.shape), dtype, self._device)
            torch.from_numpy(self._host[name]).copy_(tensor.detach(), non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return self._host


class GraphCapture:
    """Makes CUDA graphs, which start all kernels of a function at once, of functions that run on the device.

    The graphs share memory, so that the results of one are gone when another one runs.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Result]) -> Callable[[], Result]:
        """A function that does again what `run` does now, from and into the same memory, and returns the
        same tensors, rewritten. Random numbers are new each time.

        Raises RuntimeError if `run` does what a graph cannot, such as to wait for the device.
        """
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_RUNS):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                result = run()

        def replay() -> Result:
            graph.replay()
            return result

        return replay
