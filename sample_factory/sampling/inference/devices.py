"""How a policy worker runs a network on its device: rows of inputs in host memory to rows of answers."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.runtime.gpu_work import Capture, Downloads, GraphCapture, host_array

log = logging.getLogger("sample_factory")

MIN_GRAPH_ROWS = 8


class Inputs(NamedTuple):
    """Of n agents, in host memory."""

    obs: dict[str, np.ndarray]  # [n, *shape]
    state: np.ndarray  # [n, H] float32

    def first(self, n: int) -> "Inputs":
        """The first n rows, in the same memory."""
        return Inputs({key: array[:n] for key, array in self.obs.items()}, self.state[:n])


class Answers(NamedTuple):
    """Of n agents, in host memory, valid until the next ones."""

    packed: np.ndarray  # [n, K] float32, see RowLayout
    state: np.ndarray  # [n, H] float32, before the next step


class RowShapes(NamedTuple):
    """What one agent's inputs look like."""

    obs: Mapping[str, tuple[tuple[int, ...], np.dtype]]
    state_size: int

    def allocate(self, n: int, device: torch.device) -> Inputs:
        """Memory for n rows that are to be copied to the device; uninitialised."""
        obs = {key: host_array((n, *shape), dtype, device) for key, (shape, dtype) in self.obs.items()}
        return Inputs(obs, host_array((n, self.state_size), np.dtype(np.float32), device))


def _act(model: Any, obs: Mapping[str, Tensor], state: Tensor, autocast: bool) -> dict[str, Tensor]:
    """On the tensors' device: the fields of Answers."""
    with torch.autocast(state.device.type, torch.bfloat16, enabled=autocast):
        output = model.act(obs, state)
    columns = output.actions, output.log_probs[:, None], output.values[:, None], output.logits
    return {"packed": torch.cat(columns, dim=1), "state": output.rnn_state}


class CpuInference:
    """As many rows as there are, in the memory where they are."""

    def __init__(self, policy: BuiltPolicy, shapes: RowShapes):
        self._device, self._autocast, self._shapes = policy.device, policy.autocast, shapes

    def describe(self) -> str:
        """For the log."""
        return "cpu"

    def inputs(self, n: int) -> Inputs:
        """To be filled, then answered."""
        return self._shapes.allocate(n, self._device)

    def answer(self, model: Any, inputs: Inputs) -> Answers:
        """One forward pass of `model`, a network like the policy's."""
        obs = {key: torch.from_numpy(array) for key, array in inputs.obs.items()}
        output = _act(model, obs, torch.from_numpy(inputs.state), self._autocast)
        return Answers(**{name: tensor.numpy() for name, tensor in output.items()})


class GpuInference:
    """Rows are padded to a power of two, in memory that stays where it is, so that CUDA graphs can be made
    for the policy's own network, which acts nearly always. What a graph cannot do is done without one.
    """

    def __init__(self, policy: BuiltPolicy, shapes: RowShapes, capture: Capture | None):
        """capture: None for no graphs."""
        self._live, self._device, self._autocast = policy
        self._shapes, self._capture = shapes, capture
        self._batches: dict[int, _FixedBatch] = {}  # by their number of rows

    def describe(self) -> str:
        """For the log."""
        return f"{self._device}{' by CUDA graphs' if self._capture else ''}"

    def inputs(self, n: int) -> Inputs:
        """To be filled, then answered, before others are asked for."""
        return self._batch(n).host.first(n)

    def answer(self, model: Any, inputs: Inputs) -> Answers:
        """One forward pass of `model`, a network like the policy's. inputs: the last ones asked for."""
        n = len(inputs.state)
        batch = self._batch(n)
        batch.upload(n)
        run = self._graph(batch) if model is self._live else None
        output = run() if run else _act(model, batch.obs, batch.state, self._autocast)
        return Answers(**{name: array[:n] for name, array in batch.downloads(output).items()})

    def _batch(self, n: int) -> "_FixedBatch":
        size = max(MIN_GRAPH_ROWS, 1 << (n - 1).bit_length())
        if size not in self._batches:
            self._batches[size] = _FixedBatch(self._shapes.allocate(size, self._device), self._device)
        return self._batches[size]

    def _graph(self, batch: "_FixedBatch") -> Callable[[], dict[str, Tensor]] | None:
        if batch.graph is None and self._capture is not None:
            try:
                batch.graph = self._capture(lambda: _act(self._live, batch.obs, batch.state, self._autocast))
            except RuntimeError as error:  # a bug of the network's own raises again, without a graph
                self._capture = None
                # What happens while a failed capture is left covers its cause.
                reason = " ".join(str(error.__context__ or error).split())
                log.warning("Inference makes no CUDA graphs, which would be faster: %s", reason)
        return batch.graph


class _FixedBatch:
    """Memory for a number of rows, on the host and on the device."""

    def __init__(self, host: Inputs, device: torch.device):
        self.host = host
        for array in (*host.obs.values(), host.state):
            array.fill(0)  # what rows are padded with must not be NaN
        self.obs = {key: torch.from_numpy(array).to(device, copy=True) for key, array in host.obs.items()}
        self.state = torch.from_numpy(host.state).to(device, copy=True)
        self.downloads = Downloads(device)
        self.graph: Callable[[], dict[str, Tensor]] | None = None  # of the policy's own network

    def upload(self, n: int) -> None:
        """The first n rows."""
        for key, tensor in self.obs.items():
            tensor[:n].copy_(torch.from_numpy(self.host.obs[key][:n]), non_blocking=True)
        self.state[:n].copy_(torch.from_numpy(self.host.state[:n]), non_blocking=True)


def make_inference(policy: BuiltPolicy, shapes: RowShapes, cuda_graphs: bool) -> CpuInference | GpuInference:
    """For the policy's device."""
    if policy.device.type == "cpu":
        return CpuInference(policy, shapes)
    return GpuInference(policy, shapes, GraphCapture(policy.device) if cuda_graphs else None)
