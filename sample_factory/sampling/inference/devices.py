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
# How far the first replay of a CUDA graph may be from the result without a graph, relative to the largest
# absolute value (at least 1). Both run the same kernels, but libraries may choose others for a capture, which
# add up in another order, in TF32 or bf16.
FP32_TOLERANCE = 0.01
BF16_TOLERANCE = 0.05


class ActionChoice(NamedTuple):
    """How a policy worker chooses actions; in training, all of them are drawn from the policy's distribution.

    deterministic: the most likely choices and the means in place of samples.
    sample_continuous: False: the means of the continuous components only.
    """

    deterministic: bool = False
    sample_continuous: bool = True


AS_IN_TRAINING = ActionChoice()


class Inputs(NamedTuple):
    """Inputs of n agents, in host memory."""

    obs: dict[str, np.ndarray]  # [n, *shape]
    rnn_state: np.ndarray  # [n, H] float32

    def first(self, n: int) -> "Inputs":
        """Returns the first n rows, in the same memory."""
        return Inputs({key: array[:n] for key, array in self.obs.items()}, self.rnn_state[:n])


class Answers(NamedTuple):
    """Outputs for n agents, in host memory, valid until the next call."""

    packed: np.ndarray  # [n, K] float32, see RowLayout
    rnn_state: np.ndarray  # [n, H] float32, before the next step


class RowShapes(NamedTuple):
    """Shapes and dtypes of one agent's inputs."""

    obs: Mapping[str, tuple[tuple[int, ...], np.dtype]]
    rnn_state_size: int

    def allocate(self, n: int, device: torch.device) -> Inputs:
        """Returns uninitialised memory for n rows that will be copied to the device."""
        obs = {key: host_array((n, *shape), dtype, device) for key, (shape, dtype) in self.obs.items()}
        return Inputs(obs, host_array((n, self.rnn_state_size), np.dtype(np.float32), device))


class Outputs(NamedTuple):
    """Fields of Answers as tensors on the device."""

    packed: Tensor
    rnn_state: Tensor


def _act(
    model: Any, obs: Mapping[str, Tensor], rnn_state: Tensor, autocast: bool, choice: ActionChoice
) -> Outputs:
    with torch.autocast(rnn_state.device.type, torch.bfloat16, enabled=autocast):
        output = model.act(obs, rnn_state, choice.deterministic)
    if not choice.sample_continuous:
        boxes = list(model.layout.box_actions)
        output.actions[:, boxes] = model.distribution(output.logits).mode()[:, boxes]
    columns = output.actions, output.log_probs[:, None], output.values[:, None], output.logits
    return Outputs(torch.cat(columns, dim=1), output.rnn_state)


class CpuInference:
    """Inference on a CPU: batches of any size, without a copy of the inputs."""

    def __init__(self, policy: BuiltPolicy, shapes: RowShapes, choice: ActionChoice = AS_IN_TRAINING):
        self._choice = choice
        self._device = policy.device
        self._autocast = policy.autocast
        self._shapes = shapes

    def describe(self) -> str:
        """Returns the device, for the log."""
        return "cpu"

    def inputs(self, n: int) -> Inputs:
        """Returns memory for the inputs of n agents, to be filled and passed to `answer`."""
        return self._shapes.allocate(n, self._device)

    def answer(self, model: Any, inputs: Inputs) -> Answers:
        """Runs one forward pass of `model`, a network of the policy's architecture."""
        obs = {key: torch.from_numpy(array) for key, array in inputs.obs.items()}
        output = _act(model, obs, torch.from_numpy(inputs.rnn_state), self._autocast, self._choice)
        return Answers(output.packed.numpy(), output.rnn_state.numpy())


class GpuInference:
    """Inference on a GPU, with CUDA graphs for the policy's current network, which acts nearly always.

    Batches are padded to a power of two and stay at fixed addresses, as graphs require. Each graph is checked
    when it is first used: unless its results are close to those without a graph, no graphs are used any more.
    """

    def __init__(
        self,
        policy: BuiltPolicy,
        shapes: RowShapes,
        capture: Capture[Outputs] | None,
        choice: ActionChoice = AS_IN_TRAINING,
    ):
        """capture: makes a graph of a function, e.g. GraphCapture; None: no graphs."""
        self._choice = choice
        self._live = policy.model
        self._device = policy.device
        self._autocast = policy.autocast
        self._shapes = shapes
        self._capture = capture
        self._batches: dict[int, _FixedBatch] = {}  # by their number of rows

    def describe(self) -> str:
        """Returns the device and whether graphs are used, for the log."""
        return f"{self._device}{' by CUDA graphs' if self._capture else ''}"

    def inputs(self, n: int) -> Inputs:
        """Returns memory for the inputs of n agents, to be filled and passed to `answer` at once."""
        return self._batch(n).host.first(n)

    def answer(self, model: Any, inputs: Inputs) -> Answers:
        """Runs one forward pass of `model`, a network of the policy's architecture.

        inputs: those that the last call of `inputs` returned.
        """
        n = len(inputs.rnn_state)
        batch = self._batch(n)
        # Before the upload, so that the first replay gets other inputs than the capture did.
        graph = self._graph(batch) if model is self._live else None
        batch.upload(n)
        output = self._replay(batch, graph) if graph is not None else self._act(model, batch)
        arrays = batch.downloads(output._asdict())
        return Answers(arrays["packed"][:n], arrays["rnn_state"][:n])

    def _act(self, model: Any, batch: "_FixedBatch") -> Outputs:
        return _act(model, batch.obs, batch.rnn_state, self._autocast, self._choice)

    def _batch(self, n: int) -> "_FixedBatch":
        size = max(MIN_GRAPH_ROWS, 1 << (n - 1).bit_length())
        if size not in self._batches:
            self._batches[size] = _FixedBatch(self._shapes.allocate(size, self._device), self._device)
        return self._batches[size]

    def _graph(self, batch: "_FixedBatch") -> Callable[[], Outputs] | None:
        if batch.graph is None and self._capture is not None:
            try:
                batch.graph = self._capture(lambda: self._act(self._live, batch))
            except RuntimeError as error:  # a bug of the network's own raises again, without a graph
                self._capture = None
                # The errors that follow while a failed capture is left hide its cause.
                reason = " ".join(str(error.__context__ or error).split())
                log.warning("Inference uses no CUDA graphs, which would be faster: %s", reason)
        return batch.graph

    def _replay(self, batch: "_FixedBatch", graph: Callable[[], Outputs]) -> Outputs:
        """Runs the graph; the first time, compares its results with those without a graph."""
        if batch.is_checked:
            return graph()
        expected = self._act(self._live, batch)
        replayed = graph()
        tolerance = BF16_TOLERANCE if self._autocast else FP32_TOLERANCE
        difference = _difference(self._live, _on_host(replayed), _on_host(expected), tolerance)
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
    """Memory at fixed addresses for a number of rows, on the host and on the device."""

    def __init__(self, host: Inputs, device: torch.device):
        self.host = host
        for array in (*host.obs.values(), host.rnn_state):
            array.fill(0)  # the rows of padding must not be NaN
        self.obs = {key: torch.from_numpy(array).to(device, copy=True) for key, array in host.obs.items()}
        self.rnn_state = torch.from_numpy(host.rnn_state).to(device, copy=True)
        self.downloads = Downloads(device)
        self.graph: Callable[[], Outputs] | None = None  # of the policy's current network
        self.is_checked = False  # the graph's first replay was correct

    def upload(self, n: int) -> None:
        """Copies the first n rows to the device."""
        for key, tensor in self.obs.items():
            tensor[:n].copy_(torch.from_numpy(self.host.obs[key][:n]), non_blocking=True)
        self.rnn_state[:n].copy_(torch.from_numpy(self.host.rnn_state[:n]), non_blocking=True)


def _on_host(outputs: Outputs) -> Outputs:
    return Outputs(outputs.packed.cpu(), outputs.rnn_state.cpu())


def _difference(model: Any, replayed: Outputs, expected: Outputs, tolerance: float) -> str | None:
    """Returns how the results of a graph are wrong, or None if they are right. Tensors in host memory.

    Actions are random, so they are not compared with those drawn without a graph; instead, their
    log-probabilities must be those that the logits give them.
    """
    actions, log_probs, values, logits = _unpack(model, replayed.packed)
    _, _, expected_values, expected_logits = _unpack(model, expected.packed)
    for name, got, wanted in (
        ("values", values, expected_values),
        ("logits", logits, expected_logits),
        ("rnn_state", replayed.rnn_state, expected.rnn_state),
    ):
        if not _close(got, wanted, tolerance):
            return f"its {name} differ by up to {(got - wanted).abs().max():.3g}"
    try:
        wanted = model.distribution(logits).log_prob(actions)
    except (IndexError, RuntimeError) as error:
        return f"its actions are outside the action space: {error}"
    if not _close(log_probs, wanted, tolerance):
        return "its log-probabilities are not those of its actions"
    return None


def _unpack(model: Any, packed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns (actions [n, A], log_probs [n], values [n], logits [n, L]), see _act."""
    num_actions = model.layout.num_action_values
    log_probs = packed[:, num_actions]
    values = packed[:, num_actions + 1]
    return packed[:, :num_actions], log_probs, values, packed[:, num_actions + 2 :]


def _close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Returns whether all entries agree, relative to the largest finite one; NaN equals NaN."""
    largest = wanted[wanted.isfinite()].abs().amax().item() if wanted.isfinite().any() else 0.0
    return torch.allclose(got, wanted, rtol=tolerance, atol=tolerance * max(1.0, largest), equal_nan=True)


def make_inference(
    policy: BuiltPolicy, shapes: RowShapes, cuda_graphs: bool, choice: ActionChoice = AS_IN_TRAINING
) -> CpuInference | GpuInference:
    """Returns inference on the policy's device."""
    if policy.device.type == "cpu":
        return CpuInference(policy, shapes, choice)
    # The check of a graph compares log-probabilities, which are not those of the replaced means.
    has_graphs = cuda_graphs and choice.sample_continuous
    return GpuInference(policy, shapes, GraphCapture(policy.device) if has_graphs else None, choice)
