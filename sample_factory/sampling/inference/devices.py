"""Runs a policy worker's network on its device: rows of inputs in host memory to rows of outputs."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from sample_factory.exchange.run_plan import DRAWN, ActionChoice
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.runtime.gpu_work import Capture, Downloads, GraphCapture, host_array
from sample_factory.runtime.log import log

MIN_GRAPH_ROWS = 8
# The first replay of a CUDA graph may differ from the result without a graph by this much, relative to the
# largest absolute value (at least 1). For a capture, libraries may choose other kernels, which add up in
# another order, in TF32 or bf16.
FP32_TOLERANCE = 0.01
BF16_TOLERANCE = 0.05


Array = TypeVar("Array")


class Inputs(NamedTuple):
    """Holds observations [n, *shape] by key and recurrent states [n, H] float32 of n agents, in host
    memory."""

    obs: dict[str, np.ndarray]  # [n, *shape]
    rnn_state: np.ndarray  # [n, H] float32

    def first(self, n: int) -> "Inputs":
        """Returns the first n rows as views of the same memory."""
        return Inputs({key: array[:n] for key, array in self.obs.items()}, self.rnn_state[:n])


class Outputs(NamedTuple, Generic[Array]):
    """Holds a policy's outputs for n agents, as tensors on the device or as arrays in host memory.

    packed: [n, K] float32, the columns actions, log-probability, value and logits.
    rnn_state: [n, H] float32, the recurrent states before the next step.

    The next call of the inference object may overwrite the arrays in host memory.
    """

    packed: Array
    rnn_state: Array


class RowShapes(NamedTuple):
    """Describes one agent's inputs: shape and dtype of each observation by key, and floats of recurrent
    state."""

    obs: Mapping[str, tuple[tuple[int, ...], np.dtype]]
    rnn_state_size: int

    def allocate(self, n: int, device: torch.device) -> Inputs:
        """Returns uninitialised host memory for the inputs of n agents, from which `device` can copy."""
        obs = {key: host_array((n, *shape), dtype, device) for key, (shape, dtype) in self.obs.items()}
        return Inputs(obs, host_array((n, self.rnn_state_size), np.dtype(np.float32), device))


def _act(
    policy: BuiltPolicy,
    model: Any,
    obs: Mapping[str, Tensor],
    rnn_state: Tensor,
    choice: ActionChoice,
) -> Outputs[Tensor]:
    """Runs one forward pass of `model`. Inputs must be on the device; outputs are on the device too."""
    with torch.autocast(rnn_state.device.type, torch.bfloat16, enabled=policy.autocast):
        output = model.act(obs, rnn_state, *choice)
    columns = output.actions, output.log_probs[:, None], output.values[:, None], output.logits
    return Outputs(torch.cat(columns, dim=1), output.rnn_state)


class CpuInference:
    """Runs the network on a CPU: batches of any size, without a copy of the inputs."""

    def __init__(self, policy: BuiltPolicy, shapes: RowShapes, choice: ActionChoice = DRAWN):
        self._policy = policy
        self._shapes = shapes
        self._choice = choice

    def describe(self) -> str:
        """Returns the name of the device for the log: "cpu"."""
        return "cpu"

    def inputs(self, n: int) -> Inputs:
        """Returns memory for the inputs of n agents, to be filled and passed to `answer`."""
        return self._shapes.allocate(n, self._policy.device)

    def answer(self, model: Any, inputs: Inputs) -> Outputs[np.ndarray]:
        """Runs one forward pass of `model`, a network of the policy's architecture; returns its outputs."""
        obs = {key: torch.from_numpy(array) for key, array in inputs.obs.items()}
        output = _act(self._policy, model, obs, torch.from_numpy(inputs.rnn_state), self._choice)
        return Outputs(output.packed.numpy(), output.rnn_state.numpy())


class GpuInference:
    """Runs the network on a GPU, with CUDA graphs for the policy's current weights; past selves act without a
    graph.

    Batches are padded to a power of two and stay at fixed addresses, as graphs require. The first replay of
    each graph is compared with the result without a graph; if they differ, no graph is used any more.
    """

    def __init__(
        self,
        policy: BuiltPolicy,
        shapes: RowShapes,
        capture: Capture[Outputs[Tensor]] | None,
        choice: ActionChoice = DRAWN,
    ):
        """Prepares inference on the GPU of `policy`; graphs are made later, one for each size of a batch.
        capture: records a function as a CUDA graph, e.g. GraphCapture; None: no graphs are used."""
        self._policy = policy
        self._shapes = shapes
        self._capture = capture
        self._choice = choice
        self._batches: dict[int, _FixedBatch] = {}  # by their number of rows

    def describe(self) -> str:
        """Returns the device and whether graphs are used, for the log."""
        return f"{self._policy.device}{' by CUDA graphs' if self._capture else ''}"

    def inputs(self, n: int) -> Inputs:
        """Returns memory for the inputs of n agents, to be filled and passed to `answer` before the next call
        of this method."""
        return self._batch(n).host.first(n)

    def answer(self, model: Any, inputs: Inputs) -> Outputs[np.ndarray]:
        """Runs one forward pass of `model`, a network with the policy's architecture. Returns its outputs in
        host memory, which the next call overwrites.

        inputs: what the last call of `inputs` returned.
        """
        n = len(inputs.rnn_state)
        batch = self._batch(n)
        # Before the upload, so that the first replay gets other inputs than the capture.
        graph = self._graph(batch) if model is self._policy.model else None
        batch.upload(n)
        output = self._replay(batch, graph) if graph is not None else self._act(model, batch)
        arrays = batch.downloads(output._asdict())
        return Outputs(arrays["packed"][:n], arrays["rnn_state"][:n])

    def _act(self, model: Any, batch: "_FixedBatch") -> Outputs[Tensor]:
        return _act(self._policy, model, batch.obs, batch.rnn_state, self._choice)

    def _batch(self, n: int) -> "_FixedBatch":
        size = max(MIN_GRAPH_ROWS, 1 << (n - 1).bit_length())
        device = self._policy.device
        if size not in self._batches:
            self._batches[size] = _FixedBatch(self._shapes.allocate(size, device), device)
        return self._batches[size]

    def _graph(self, batch: "_FixedBatch") -> Callable[[], Outputs[Tensor]] | None:
        if batch.graph is None and self._capture is not None:
            try:
                batch.graph = self._capture(lambda: self._act(self._policy.model, batch))
            except RuntimeError as error:  # a fault of the network itself raises again without a graph
                self._capture = None
                # Leaving a failed capture raises further errors, which hide the cause.
                reason = " ".join(str(error.__context__ or error).split())
                log.warning("Inference uses no CUDA graphs, which would be faster: %s", reason)
        return batch.graph

    def _replay(self, batch: "_FixedBatch", graph: Callable[[], Outputs[Tensor]]) -> Outputs[Tensor]:
        """Replays the graph. The first time, also runs a forward pass without a graph; if its outputs differ
        from those of the graph, switches graphs off and returns the outputs of the forward pass."""
        if batch.is_checked:
            return graph()
        expected = self._act(self._policy.model, batch)
        replayed = graph()
        tolerance = BF16_TOLERANCE if self._policy.autocast else FP32_TOLERANCE
        difference = _difference(self._policy.model, replayed, expected, tolerance)
        if difference is None:
            batch.is_checked = True
            return replayed
        log.warning(
            "CUDA graphs are switched off, and inference continues without them: the first replay of the "
            "graph for %d rows is wrong (%s). --cuda_graphs=False avoids this check",
            len(batch.rnn_state),
            difference,
        )
        self._capture = None
        for other in self._batches.values():
            other.graph = None
        return expected


class _FixedBatch:
    """Holds a batch of inputs at fixed addresses, on host and device, with the CUDA graph that reads them."""

    def __init__(self, host: Inputs, device: torch.device):
        self.host = host
        for array in (*host.obs.values(), host.rnn_state):
            array.fill(0)  # padding must not be NaN
        self.obs = {key: torch.from_numpy(array).to(device, copy=True) for key, array in host.obs.items()}
        self.rnn_state = torch.from_numpy(host.rnn_state).to(device, copy=True)
        self.downloads = Downloads(device)
        self.graph: Callable[[], Outputs[Tensor]] | None = None  # of the policy's current network
        self.is_checked = False  # the graph's first replay was correct

    def upload(self, n: int) -> None:
        """Copies the first n rows of the inputs from the host to the device."""
        for key, tensor in self.obs.items():
            tensor[:n].copy_(torch.from_numpy(self.host.obs[key][:n]), non_blocking=True)
        self.rnn_state[:n].copy_(torch.from_numpy(self.host.rnn_state[:n]), non_blocking=True)


def _difference(
    model: Any, replayed: Outputs[Tensor], expected: Outputs[Tensor], tolerance: float
) -> str | None:
    """Returns a text that says how the outputs of a graph differ from the expected outputs; None if both
    agree up to `tolerance`.

    Actions are random, so the graph's actions are not compared with the expected ones. Instead, the graph's
    log-probabilities are compared with the log-probabilities of its actions under its logits.
    """
    num_actions = model.layout.num_action_values
    num_logits = replayed.packed.shape[1] - num_actions - 2
    sizes = [num_actions, 1, 1, num_logits]  # as in _act
    actions, log_probs, values, logits = replayed.packed.cpu().split(sizes, dim=1)
    _, _, expected_values, expected_logits = expected.packed.cpu().split(sizes, dim=1)
    for name, got, wanted in (
        ("values", values, expected_values),
        ("logits", logits, expected_logits),
        ("rnn_state", replayed.rnn_state.cpu(), expected.rnn_state.cpu()),
    ):
        if not _close(got, wanted, tolerance):
            return f"its {name} differ by up to {(got - wanted).abs().max():.3g}"
    try:
        wanted = model.distribution(logits).log_prob(actions)
    except (IndexError, RuntimeError) as error:
        return f"its actions are outside the action space: {error}"
    if not _close(log_probs[:, 0], wanted, tolerance):
        return "its log-probabilities are not those of its actions"
    return None


def _close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Returns whether all entries of two tensors agree up to `tolerance` times the largest finite absolute
    value of `wanted` (at least 1). NaN equals NaN."""
    largest = wanted[wanted.isfinite()].abs().amax().item() if wanted.isfinite().any() else 0.0
    return torch.allclose(got, wanted, rtol=tolerance, atol=tolerance * max(1.0, largest), equal_nan=True)


def make_inference(
    policy: BuiltPolicy, shapes: RowShapes, cuda_graphs: bool, choice: ActionChoice = DRAWN
) -> CpuInference | GpuInference:
    """Returns the object that runs the policy's network on its device. shapes: shapes and dtypes of one
    agent's inputs. cuda_graphs: whether a GPU uses CUDA graphs. choice: how actions are chosen from the
    network's outputs, by default at random."""
    if policy.device.type == "cpu":
        return CpuInference(policy, shapes, choice)
    return GpuInference(policy, shapes, GraphCapture(policy.device) if cuda_graphs else None, choice)
