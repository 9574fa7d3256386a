"""The network as it is exported, from observations of the env to actions of the env; and its ONNX model.

Inputs and outputs are described by names, shapes and dtypes, and by texts about them.
"""

import contextlib
import copy
import functools
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import onnx
import torch
from torch import Tensor, nn

from sample_factory.envs.abilities import NamesActions, find_ability
from sample_factory.envs.env_info import OwnSpaces
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.models.action_distributions import GaussianActions, MixedActions
from sample_factory.models.actor_critic import ActorCritic, PolicyOutput
from sample_factory.models.cpu_layers import PatchConv2d
from sample_factory.models.family_encoders import TextEncoder
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.failures import CommandFailed, one_line
from sample_factory.spaces.actions import (
    Discretized,
    Leaf,
    action_decoder,
    action_layout,
    action_leaves,
    choices,
    clipping_bounds,
)
from sample_factory.spaces.observations import STORED_DTYPES, Indices, leaf_spaces

RNN_STATE = "rnn_state"
NEXT_RNN_STATE = "next_rnn_state"
VALUE = "value"
BATCH = "batch"  # name of the first axis of all inputs and outputs
MAX_BYTES = 2**31 - 1  # of a file, by the format
MAX_REASON = 400  # characters
MAX_NAMED = 100  # choices of an action whose meaning is listed


class ObservationInput(NamedTuple):
    """An input of the exported network: one entry of the flat dict of observations.
    key: key in this dict. name: name of the input. space: space of a single observation as the env has it.
    shape: shape without the batch: of `space`, or of a stack of its images (--env_framestack)."""

    key: str
    name: str
    space: gym.Space[Any]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the observations as the env returns them."""
        return np.dtype(self.space.dtype)

    def as_given(self, stored: np.ndarray) -> np.ndarray:
        """Converts rows [B, ...], as the network stores observations, back to observations [B, *shape] as the
        env returns them."""
        if isinstance(self.space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            stored = stored + np.ravel(self.space.start)
        return stored.reshape(-1, *self.shape).astype(self.dtype)

    def describe(self) -> dict[str, Any]:
        """Returns what the ONNX file says about this input, as values for JSON."""
        space = " ".join(str(self.space).split())
        names = {"key": self.key, "input": self.name}
        return {**names, "dtype": str(self.dtype), "shape": self.shape, "space": space}


class ActionPart(NamedTuple):
    """A part of the action space that is no Tuple or Dict: the whole space, or an entry of a Tuple or Dict.
    path: indices and keys that lead to the part in an action; empty for the whole space.
    suffix: end of the names of its outputs. values: its columns in a row of actions.
    logits: its columns in a row of logits."""

    space: Leaf
    path: tuple[Any, ...]
    suffix: str
    values: slice
    logits: slice

    @property
    def is_box(self) -> bool:
        return isinstance(self.space, gym.spaces.Box)

    @property
    def action(self) -> str:
        """Name of the network's output that contains this part of the action, in the form that the env
        takes."""
        return f"action{self.suffix}"

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the action's distribution -> names of the outputs with their values: mean and stddev
        of a Box, else logits."""
        return {name: f"{name}{self.suffix}" for name in (("mean", "stddev") if self.is_box else ("logits",))}

    def describe(self) -> dict[str, Any]:
        """Returns what the ONNX file says about this part, as values for JSON."""
        space = self.space
        described: dict[str, Any] = {
            "output": self.action,
            "path": self.path,
            "type": type(space).__name__,
            **self.parameters,
        }
        if isinstance(space, gym.spaces.Discrete):
            described |= {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        elif not isinstance(space, gym.spaces.Box):
            sizes, starts = choices(space)
            described |= {"nvec": sizes.tolist(), "start": starts.tolist()}
        else:
            bounds = [bound.astype(object) for bound in (space.low, space.high)]
            for bound in bounds:
                bound[~np.isfinite(bound.astype(float))] = None  # JSON has no number for it
            described |= {"shape": space.shape, "low": bounds[0].tolist(), "high": bounds[1].tolist()}
        if isinstance(space, Discretized):
            described["values"] = space.values.tolist()
        return described


def observation_inputs(
    own: gym.Space[Any], stored: gym.spaces.Dict, reserved: Collection[str]
) -> Iterator[ObservationInput]:
    """Yields an input for each entry of the observations that the network uses.
    own: space of an agent's observations as the env has it.
    stored: space as the network gets them, with stacked images if --env_framestack is set.
    reserved: names of other inputs and outputs, which an input must not have."""
    leaves = {key: space for key, space in leaf_spaces(own).items() if key in stored.spaces}
    for key, space in leaves.items():
        name = key
        while name in reserved or (name != key and name in leaves):
            name = f"observation_{name}"
        is_array = isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary)
        shape = stored.spaces[key].shape if is_array else space.shape
        yield ObservationInput(key, name, space, shape or ())


def action_parts(space: gym.Space[Any]) -> Iterator[ActionPart]:
    """Yields the parts of an action space; no two have the same suffix."""
    value = logit = 0  # columns at which the part begins
    suffixes: set[str] = set()
    for path, leaf in action_leaves(space):
        suffix = "".join(f"_{key}" for key in path)
        while suffix in suffixes:  # such as _a_0, for a key "a_0" beside a Tuple "a"
            suffix += "_"
        suffixes.add(suffix)
        layout = action_layout(leaf)
        values = slice(value, value + layout.num_action_values)
        yield ActionPart(leaf, path, suffix, values, slice(logit, logit + layout.num_logits))
        value, logit = values.stop, logit + layout.num_logits


class ExportedNetwork(nn.Module):
    """Computes one step of a policy that takes the most likely actions, from observations of the env to
    actions of the env.
    inputs, outputs: names of the input and output tensors, each with a first axis of any size.
    observations, actions: descriptions of the observation inputs and of the action outputs."""

    def __init__(self, model: ActorCritic, own: OwnSpaces, stored: gym.spaces.Dict, has_value: bool):
        """Copies a policy and prepares the conversions around it.
        model: the policy, on the CPU in float32. own: spaces of an agent as the env has them.
        stored: space of observations as the network gets them. has_value: whether the value is an output."""
        super().__init__()
        self.model = with_plain_layers(model)
        self.has_value = has_value
        self.actions = tuple(action_parts(own.action))
        names = [part.action for part in self.actions]
        names += [name for part in self.actions for name in part.parameters.values()]
        reserved = {RNN_STATE, NEXT_RNN_STATE, VALUE, *names}
        self.observations = tuple(observation_inputs(own.observation, stored, reserved))
        has_state = model.state_size > 0
        self.inputs = [*(entry.name for entry in self.observations), *[RNN_STATE] * has_state]
        self.outputs = [*names, *[NEXT_RNN_STATE] * has_state, *[VALUE] * has_value]
        self._store = [_storing(entry) for entry in self.observations]
        self._convert = [_conversion(part) for part in self.actions]

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Maps the tensors [B, ...] in the order of `inputs` to tensors [B, ...] in the order of
        `outputs`."""
        observations = {
            entry.key: store(x) for entry, store, x in zip(self.observations, self._store, inputs)
        }
        rnn_state = inputs[-1] if self.model.state_size else torch.zeros(inputs[0].shape[0], 0)
        return self.outputs_of(self.model, self.model.act(observations, rnn_state, deterministic=True))

    def outputs_of(self, model: ActorCritic, output: PolicyOutput) -> tuple[Tensor, ...]:
        """Converts the output of a model to tensors [B, ...] in the order of `outputs`."""
        outputs = [convert(output.actions) for convert in self._convert]
        distribution = model.distribution(output.logits)
        gaussian = distribution.box if isinstance(distribution, MixedActions) else distribution
        places = {column: place for place, column in enumerate(model.layout.box_actions)}
        for part in self.actions:
            if isinstance(gaussian, GaussianActions) and part.is_box:
                own = [places[column] for column in range(part.values.start, part.values.stop)]
                for x in (gaussian.means[:, own], gaussian.log_stds[:, own].exp()):
                    outputs.append(x.reshape(-1, *(part.space.shape or ())))
            else:
                outputs.append(output.logits[:, part.logits])
        if model.state_size:
            outputs.append(output.rnn_state)
        if self.has_value:
            normalizer = model.returns_normalizer  # the value is on the scale of the rewards of the training
            outputs.append(output.values if normalizer is None else normalizer.denormalize(output.values))
        return tuple(outputs)


def _storing(entry: ObservationInput) -> Callable[[Tensor], Tensor]:
    """Returns a function that converts observations of one entry, [B, *shape] as the env returns them, to the
    form that the network takes: choices as int64 [B, n] counted from 0, stored dtypes unchanged, all else
    float32."""
    space: Any = entry.space
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        start = torch.from_numpy(np.ravel(space.start).astype(np.int64))
        return lambda x: x.reshape(x.shape[0], -1).long() - start
    is_kept = isinstance(space, Indices) or entry.dtype in STORED_DTYPES
    return lambda x: x if is_kept else x.float()


def _conversion(part: ActionPart) -> Callable[[Tensor], Tensor]:
    """Returns a function that takes rows of action values, [B, K] float32, and converts the columns of this
    part to actions [B, *shape] of its space."""
    space = part.space
    shape = space.shape or ()
    # Vector envs take int64 for a Discrete space, whatever its dtype is.
    dtype: Any = np.int64 if isinstance(space, gym.spaces.Discrete) else space.dtype
    torch_dtype = torch.from_numpy(np.zeros(0, dtype)).dtype
    if not isinstance(space, gym.spaces.Box):
        start = torch.from_numpy(choices(space)[1].copy())
        return lambda rows: (rows[:, part.values].reshape(-1, *shape).long() + start).to(torch_dtype)
    is_integer = space.dtype.kind != "f"
    # Bounds of a wide dtype would be outside of the Box if they were rounded to float32.
    exact = torch.promote_types(torch.float32, torch.float32 if is_integer else torch_dtype)
    low, high = (torch.from_numpy(bound.copy()).to(exact) for bound in clipping_bounds(space))

    def convert(rows: Tensor) -> Tensor:
        numbers = rows[:, part.values].reshape(-1, *shape).to(exact)
        return (numbers.round() if is_integer else numbers).clamp(low, high).to(torch_dtype)

    return convert


def with_plain_layers(model: ActorCritic) -> ActorCritic:
    """Copies a model, and replaces layers by equivalent ones without branches that depend on the number of
    rows or on how tensors lie in memory. The exporter records one path through the code, but our layers have
    several paths, each fast for other batches."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        layer: Any = module
        if isinstance(module, RunningNormalizer):
            layer.register_buffer("inverse", (layer.variance + layer.eps).rsqrt().float())
            layer.mean = layer.mean.float()
            layer.normalize = functools.partial(_normalize, layer)
        elif isinstance(module, TowerActorCritic):
            layer.normalizes_in_slices = False
        elif isinstance(module, PatchConv2d):
            layer.forward = functools.partial(nn.Conv2d.forward, layer)
        elif isinstance(module, TextEncoder):
            layer.forward = functools.partial(_encode, layer)
    return model


def _normalize(layer: Any, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normalises and clips x [B, ...] as RunningNormalizer.normalize does, without its branches.
    layer: a RunningNormalizer, with buffers `mean` and `inverse` (1 / standard deviation) and a number
        `clip`."""
    normalized: Tensor = (x.float() - layer.mean) * layer.inverse
    return normalized.clamp(-layer.clip, layer.clip).to(dtype)


def _encode(encoder: TextEncoder, tokens: Tensor) -> Tensor:
    """Encodes tokens as TextEncoder.forward does, but each row by itself, even if texts are equal."""
    return encoder.encode(tokens.clamp(0, encoder.words.num_embeddings - 1))


class ExportFailed(CommandFailed):
    """Raised if a policy cannot be exported, or if an output of the exported policy differs from the trained
    policy by more than 1e-4; no file was written."""


def to_onnx(network: ExportedNetwork) -> onnx.ModelProto:
    """Converts the network to an ONNX model with a dynamic first axis, `batch`, of all inputs and outputs.

    Raises ExportFailed for a network that torch cannot export.
    """
    arrays = [np.zeros((2, *entry.shape), entry.dtype) for entry in network.observations]  # of two rows
    if network.model.state_size:
        arrays.append(np.zeros((2, network.model.state_size), np.float32))
    example = tuple(map(torch.from_numpy, arrays))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it notes e.g. that torchvision is missing
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Tensors that a network caches in its first call must be real ones, not the exporter's fake ones.
        network((*example,))
        try:
            program = torch.onnx.export(
                _trace(network, example),
                dynamo=True,
                input_names=network.inputs,
                output_names=network.outputs,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # whatever a network, and the exporter for it, raise
            raise ExportFailed(
                "torch cannot export this network; forward should have no branch and no loop that depends on "
                f"numbers in tensors or on the number of rows: {one_line(error)[:MAX_REASON]}"
            ) from None
    assert program is not None, "dynamo=True"
    model: onnx.ModelProto = program.model_proto
    if model.ByteSize() > MAX_BYTES:
        raise ExportFailed(f"the network has {model.ByteSize():,} bytes; a file of ONNX holds {MAX_BYTES:,}")
    _remove_traces(model)
    for tensor in (*model.graph.input, *model.graph.output):  # torch calls this dimension s21, or similar
        tensor.type.tensor_type.shape.dim[0].dim_param = BATCH
    return model


def _trace(network: ExportedNetwork, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    """Exports the network as a torch.export program that accepts any number of rows."""
    batch = torch.export.Dim(BATCH)
    shapes = (tuple({0: batch} for _ in example),)
    try:
        return torch.export.export(network, (example,), dynamic_shapes=shapes, strict=False)
    except Exception:  # whatever it raises for code that it does not understand, such as len(tensor)
        with contextlib.suppress(Exception):
            return torch.export.export(network, (example,), dynamic_shapes=shapes, strict=True)
        raise


def _remove_traces(model: onnx.ModelProto) -> None:
    """Removes the exporter's notes, which are larger than a small network and hold paths of this machine."""
    graph: Any = model.graph
    model.producer_name = "sample_factory"
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *graph.node, *values, *model.functions):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    graph.ClearField("value_info")


def describe_actions(env: MultiAgentEnv, own: OwnSpaces, parts: Sequence[ActionPart]) -> list[dict[str, Any]]:
    """Returns what the ONNX file says about each part of the actions, as values for JSON. If the env names
    its actions, the meanings of choices are listed. Must be called after the env's first reset."""
    namer = find_ability(env.env, NamesActions)
    is_named = type(namer) is not NamesActions  # which stands for an env without names
    decode = action_decoder(own.action)
    neutral = np.zeros(sum(part.values.stop - part.values.start for part in parts), np.float32)
    for part in parts:  # what does least: zeros, the first choices, or the number next to 0
        if isinstance(part.space, Discretized):
            neutral[part.values] = np.abs(part.space.values).argmin()
    described = [part.describe() for part in parts]
    for part, texts in zip(parts, described):
        if is_named and isinstance(part.space, gym.spaces.Discrete) and part.space.n <= MAX_NAMED:
            rows = np.tile(neutral, (int(part.space.n), 1))
            rows[:, part.values.start] = np.arange(part.space.n)
            texts["meanings"] = [namer.action_text(decode(row)) for row in rows]
    return described
