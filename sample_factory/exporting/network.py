"""The network as it is exported: from observations of the env to actions of the env, with torch's layers."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.exporting.signature import ActionPart, ObservationInput, Signature
from sample_factory.models.action_distributions import MAX_LOG_STD, MIN_LOG_STD
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.cpu_layers import PatchConv2d
from sample_factory.models.family_encoders import TextEncoder
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.spaces.observations import STORED_DTYPES, Indices


class ExportedNetwork(nn.Module):
    """One step of a policy that takes the most likely actions.

    Its inputs and outputs are those of the signature, in that order.
    """

    def __init__(self, model: ActorCritic, signature: Signature):
        """model: on the CPU, in float32. It is copied."""
        super().__init__()
        self.model = with_plain_layers(model)
        self.conversions = nn.ModuleList(_ObservationInput(entry) for entry in signature.observations)
        self.parts = nn.ModuleList(_ActionOutput(part) for part in signature.parts)
        self._signature = signature

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Maps the inputs [B, ...] to the outputs [B, ...]."""
        entries = self._signature.observations
        observations = {entry.key: store(x) for entry, store, x in zip(entries, self.conversions, inputs)}
        has_state = self._signature.state_size > 0
        rnn_state = inputs[-1] if has_state else torch.zeros(inputs[0].shape[0], 0)
        output = self.model.act(observations, rnn_state, deterministic=True)
        parts = cast(Sequence[_ActionOutput], self.parts)
        outputs = [part.action(output.actions) for part in parts]
        for part in parts:
            outputs += part.parameters_of(output.logits)
        if has_state:
            outputs.append(output.rnn_state)
        if self._signature.has_value:
            outputs.append(denormalized_values(self.model, output.values))
        return tuple(outputs)

    def example(self) -> tuple[Tensor, ...]:
        """Returns zeros for two rows of the inputs."""
        signature = self._signature
        arrays = [np.zeros((2, *entry.shape), entry.dtype) for entry in signature.observations]
        if signature.state_size:
            arrays.append(np.zeros((2, signature.state_size), np.float32))
        return tuple(map(torch.from_numpy, arrays))


def denormalized_values(model: ActorCritic, values: Tensor) -> Tensor:
    """Returns values [B] on the scale of the rewards that the policy was trained with."""
    return values if model.returns_normalizer is None else model.returns_normalizer.denormalize(values)


class _ObservationInput(nn.Module):
    """Converts an observation as the env has it to the one that is stored, see `observation_layout`."""

    start: Tensor  # [K] int64, the smallest number of each choice

    def __init__(self, entry: ObservationInput):
        super().__init__()
        space: Any = entry.space
        self.is_choice = isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete)
        self.is_kept = isinstance(space, Indices) or entry.dtype in STORED_DTYPES
        start = np.ravel(space.start) if self.is_choice else np.zeros(0)
        self.register_buffer("start", torch.from_numpy(start.astype(np.int64)))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, *shape] to [B, *stored shape]."""
        if self.is_choice:
            return x.reshape(x.shape[0], -1).long() - self.start
        return x if self.is_kept else x.float()


class _ActionOutput(nn.Module):
    """Converts rows of actions and logits to actions of a space and to the parameters of a distribution."""

    start: Tensor  # smallest numbers of the choices
    low: Tensor  # bounds of a Box
    high: Tensor

    def __init__(self, part: ActionPart):
        super().__init__()
        space: Any = part.space
        self.part = part
        self.shape = space.shape
        # Vector envs take int64 for a Discrete space, whatever its dtype is.
        dtype = np.int64 if isinstance(space, gym.spaces.Discrete) else space.dtype
        self.dtype = torch.from_numpy(np.zeros(0, dtype)).dtype
        if part.is_box:
            self.register_buffer("low", torch.from_numpy(space.low.astype(np.float32)))
            self.register_buffer("high", torch.from_numpy(space.high.astype(np.float32)))
        else:
            self.register_buffer("start", torch.tensor(np.array(space.start, np.int64)))

    def action(self, actions: Tensor) -> Tensor:
        """Maps rows [B, K] float32 to actions [B, *shape] of the space, within its bounds."""
        action = actions[:, self.part.values].reshape(-1, *self.shape)
        if self.part.is_box:
            return torch.clamp(action, self.low, self.high).to(self.dtype)
        return (action.long() + self.start).to(self.dtype)

    def parameters_of(self, logits: Tensor) -> list[Tensor]:
        """Maps rows of logits [B, L] to logits [B, n], or to means and standard deviations [B, *shape]."""
        own = logits[:, self.part.logits]
        if not self.part.is_box:
            return [own]
        means, log_stds = own.chunk(2, dim=-1)
        stddevs = log_stds.clamp(MIN_LOG_STD, MAX_LOG_STD).exp()
        return [numbers.reshape(-1, *self.shape) for numbers in (means, stddevs)]


def with_plain_layers(model: ActorCritic) -> ActorCritic:
    """Returns a copy whose layers compute the same without looking at the number of rows or the memory.

    An exporter follows one path through the code; ours has several, which suit different batches.
    """
    model = copy.deepcopy(model)
    replaced: dict[nn.Module, nn.Module] = {}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            make_plain = _PLAIN.get(type(child))
            if make_plain is None:
                continue
            if child not in replaced:
                replaced[child] = make_plain(child)
            setattr(module, name, replaced[child])
    return model.eval()


class _PlainNormalizer(nn.Module):
    """A RunningNormalizer that is not updated."""

    mean: Tensor
    inverse: Tensor  # of the standard deviation

    def __init__(self, normalizer: RunningNormalizer):
        super().__init__()
        self.shape = normalizer.shape
        self.clip = normalizer.clip
        self.register_buffer("mean", normalizer.mean.float())
        self.register_buffer("inverse", (normalizer.variance + normalizer.eps).rsqrt().float())

    def normalize(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns what RunningNormalizer.normalize does."""
        return ((x.float() - self.mean) * self.inverse).clamp(-self.clip, self.clip).to(dtype)

    def denormalize(self, x: Tensor) -> Tensor:
        """Returns what RunningNormalizer.denormalize does."""
        return x.float().clamp(-self.clip, self.clip) / self.inverse + self.mean


class _PlainTextEncoder(nn.Module):
    """A TextEncoder that reads each row, also texts that are equal."""

    def __init__(self, encoder: TextEncoder):
        super().__init__()
        self.encoder = encoder
        self.num_tokens = encoder.words.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps [B, L] int64 to [B, out_size]."""
        return self.encoder.encode(tokens.clamp(0, self.num_tokens - 1))


def _plain_convolution(layer: PatchConv2d) -> nn.Conv2d:
    sizes: Any = (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride)
    plain = nn.Conv2d(*sizes)
    plain.weight = layer.weight
    plain.bias = layer.bias
    return plain


_PLAIN: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    RunningNormalizer: _PlainNormalizer,
    PatchConv2d: _plain_convolution,
    TextEncoder: _PlainTextEncoder,
}
