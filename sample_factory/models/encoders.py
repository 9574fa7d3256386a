"""Encoders: normalised observations to one vector of features per row."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.conv_stack import ConvStack, channels_first, conv_stack
from sample_factory.models.cpu_layers import Conv2d, Linear, PatchConv2d, ToChannelsLast
from sample_factory.models.custom_parts import make_custom_part, out_size
from sample_factory.models.encoder_choice import (
    CONVNETS,
    RESNET_IMPALA_CHANNELS,
    RESNETS,
    V1_RESNET,
    choose_encoder,
    conv_mlp_widths,
    convolved,
    encoded_spaces,
    grouped_spaces,
    input_groups,
)
from sample_factory.models.network_registry import ENCODER
from sample_factory.models.normalizers import RawImages, autocast_dtype
from sample_factory.spaces.observations import ImageLayout, Indices

ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh}
MAX_SCALE = 5.0  # where normalised observations are clipped


class ComputesLogits:
    """Marks an encoder that computes the logits of the actions itself, e.g. by convolutions over a map: they
    are its first `num_logits` outputs.

    The network then has no core, no decoder and no action head; the value depends on the other outputs.
    """

    num_logits: int


def make_encoder(flags: ModelFlags, observation_space: gym.spaces.Dict) -> nn.Module:
    """Makes the encoder that --encoder_custom names; without the flag, a MultiInputEncoder.

    Raises ValueError for an unknown name or an observation that no preset can encode, NetworkError for a
    custom encoder that cannot be made or has no out_size.
    """
    if flags.encoder_custom is None:
        return MultiInputEncoder(flags, observation_space)
    encoder = make_custom_part(ENCODER, flags.encoder_custom, flags, observation_space)
    out_size(encoder)
    return encoder


def mlp(flags: ModelFlags, in_size: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Makes an MLP that maps [B, in_size] to [B, widths[-1]], with an activation after each linear layer;
    the identity if `widths` is empty."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [Linear(in_size, width), ACTIVATIONS[flags.nonlinearity]()]
        in_size = width
    return nn.Sequential(*layers)


class TakesRawImages:
    """Marks an encoder that normalises some images itself.

    raw_keys: keys of the observations that may be RawImages.
    """

    raw_keys: frozenset[str]


class MultiInputEncoder(nn.Module, TakesRawImages):
    """Encodes several observations: one encoder for all vectors together and one for each other observation
    (see `input_groups`). Concatenates their outputs in the order of sorted keys."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.groups = input_groups(encoded_spaces(observation_space))
        self.encoders = nn.ModuleList(
            make_observation_encoder(flags, keys, space)
            for keys, space in grouped_spaces(observation_space).items()
        )
        self.out_size = sum(out_size(encoder) for encoder in self.encoders)
        self.raw_keys = frozenset(
            keys[0] for keys, encoder in zip(self.groups, self.encoders) if takes_raw_images(encoder)
        )

    def forward(self, observations: Mapping[str, Tensor | RawImages]) -> Tensor:
        """Maps observations [B, ...] by key to features [B, out_size]."""
        outputs = [
            encoder(_joined([observations[key] for key in keys]))
            for keys, encoder in zip(self.groups, self.encoders)
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


def _joined(observations: Sequence[Any]) -> Any:
    """Concatenates vectors [B, n] and scalars [B] to [B, total]; returns a single observation of any shape
    unchanged."""
    if len(observations) == 1:
        return observations[0]
    return torch.cat([rows.reshape(rows.shape[0], -1) for rows in observations], dim=-1)


def make_observation_encoder(
    flags: ModelFlags, key: str, space: gym.spaces.Box
) -> "IndexEncoder | VectorEncoder | ImageEncoder":
    """Makes the encoder of one observation, as chosen by `choose_encoder`; it maps [B, *shape] to [B,
    out_size]. Raises ValueError for an observation that no built-in network can encode."""
    choice = choose_encoder(flags, key, space)
    if isinstance(space, Indices):
        return IndexEncoder(flags, space.sizes, choice.widths)
    if choice.image is None:
        return VectorEncoder(flags, space.shape, choice.widths)
    return ImageEncoder(flags, choice.image, choice.preset)


class VectorEncoder(nn.Module):
    """Flattens an observation of any shape and applies an MLP: [B, *shape] to [B, widths[-1]]."""

    def __init__(self, flags: ModelFlags, shape: tuple[int, ...], widths: tuple[int, ...]):
        super().__init__()
        in_size = torch.Size(shape).numel()
        self.layers = mlp(flags, in_size, widths)
        self.out_size = widths[-1] if widths else in_size

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, *shape] to [B, out_size]."""
        features: Tensor = self.layers(x.reshape(x.shape[0], -1))
        return features


class IndexLinear(nn.Module):
    """A linear layer on concatenated one-hot vectors, computed by looking up rows of its weight.

    weight: [sum of sizes, out_features]. Unlike in nn.Linear, each choice has a row, which is contiguous in
    memory: with 100,000 choices, forward and backward take a sixth of the time.

    The hot entry of a one-hot vector of n entries is scaled to sqrt(n), at most 5. Normalising the vector, as
    other observations are, would give about this value if all choices were equally frequent.
    """

    offsets: Tensor  # [K] int64, first row of each component
    scales: Tensor  # [K, 1]

    def __init__(self, sizes: Sequence[int], out_features: int):
        super().__init__()
        offsets = np.cumsum((0, *sizes[:-1]))
        self.weight = nn.Parameter(torch.empty(sum(sizes), out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.register_buffer("offsets", torch.from_numpy(offsets), persistent=False)
        scales = [min(math.sqrt(n), MAX_SCALE) for n in sizes]
        self.register_buffer("scales", torch.tensor(scales).unsqueeze(1), persistent=False)
        bound = 1 / math.sqrt(len(self.weight))  # as in nn.Linear
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, indices: Tensor) -> Tensor:
        """Maps [B, K] int64 to [B, out_features]."""
        # Rows whose result is not used, such as those that pad a batch, may hold any number.
        rows = (indices + self.offsets).clamp(0, len(self.weight) - 1)
        dtype = autocast_dtype(indices.device)
        looked_up = nn.functional.embedding(rows, self.weight).to(dtype)
        return (looked_up * self.scales.to(dtype)).sum(dim=1) + self.bias.to(dtype)


class IndexEncoder(nn.Module):
    """Encodes Discrete or MultiDiscrete observations by an MLP on one-hot vectors: [B, K] to [B, widths[-1]].

    sizes: number of choices of each component, [K].
    """

    def __init__(self, flags: ModelFlags, sizes: Sequence[int], widths: tuple[int, ...]):
        super().__init__()
        self.table = IndexLinear(sizes, widths[0])
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.layers = mlp(flags, widths[0], widths[1:])
        self.out_size = widths[-1]

    def forward(self, indices: Tensor) -> Tensor:
        """Maps indices, int64 [B, K] or [B, ...] with K elements per row, to [B, out_size]."""
        features: Tensor = self.layers(self.activation(self.table(indices.flatten(1))))
        return features


class ImageEncoder(nn.Module):
    """Encodes images by convolutions and fully connected layers: [B, *shape] to [B, out_size].

    image: how an observation holds the image. preset: a name in RESNETS or CONVNETS.
    """

    def __init__(self, flags: ModelFlags, image: ImageLayout, preset: str):
        super().__init__()
        self.image = image
        self.stack: ConvStack | None = None
        if preset in RESNETS:
            block = InPlaceResidualBlock if preset == V1_RESNET else ResidualBlock
            self.convolutions = resnet_impala(flags, image.size.channels, block)
        else:
            self.convolutions = convnet(flags, preset, image.size.channels)
            self.stack = conv_stack(self.convolutions, image, flags.nonlinearity)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        flat_size = math.prod(convolved(preset, image.size))
        widths = conv_mlp_widths(flags)
        self.fully_connected = mlp(flags, flat_size, widths)
        self.out_size = widths[-1] if widths else flat_size

    def forward(self, x: Tensor | RawImages) -> Tensor:
        """Maps normalised images [B, *shape], or with a ConvStack raw ones, to [B, out_size]."""
        if isinstance(x, RawImages):
            assert self.stack is not None
            encoded = self.stack.encode(self.convolutions, x)
            if not len(self.fully_connected):
                encoded = encoded.clone()  # a user's decoder or core may change it in place
        else:
            # The last activation is applied after flattening: before it, its gradient would have another
            # memory format than its input, which takes ten times as long.
            encoded = self.activation(self.convolutions(channels_first(x, self.image)).flatten(1))
        features: Tensor = self.fully_connected(encoded)
        return features


def takes_raw_images(encoder: nn.Module) -> bool:
    """Returns whether the encoder of an observation can normalise it itself."""
    return isinstance(encoder, ImageEncoder) and encoder.stack is not None


def convnet(flags: ModelFlags, preset: str, channels: int) -> nn.Sequential:
    """Makes a plain stack of convolutions, without the activation after the last one.

    preset: a name in CONVNETS. channels: number of channels of the image, which must be large enough, see
    `smallest_side`.
    """
    layers: list[nn.Module] = []
    for conv in CONVNETS[preset]:
        if layers or conv.padding:
            layers.append(Conv2d(channels, conv.channels, conv.kernel, conv.stride, conv.padding))
        else:
            layers.append(PatchConv2d(channels, conv.channels, conv.kernel, conv.stride))
        layers.append(ACTIVATIONS[flags.nonlinearity]())
        channels = conv.channels
    return nn.Sequential(*layers[:-1])


class ResidualBlock(nn.Module):
    """Computes x + conv3x3(act(conv3x3(act(x)))) for x [B, C, H, W]."""

    def __init__(self, flags: ModelFlags, channels: int):
        super().__init__()
        self.layers = nn.Sequential(
            ACTIVATIONS[flags.nonlinearity](),
            Conv2d(channels, channels, 3, padding=1),
            ACTIVATIONS[flags.nonlinearity](),
            Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.layers(x)
        return x + residual


class InPlaceResidualBlock(ResidualBlock):
    """Computes act(x) + conv3x3(act(conv3x3(act(x)))) for x [B, C, H, W], as version 1 did: its activations
    changed x in place, so that the activated x was added."""

    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.layers[0](x)
        residual: Tensor = self.layers[1:](activated)
        return activated + residual


def resnet_impala(
    flags: ModelFlags, channels: int, block: type[ResidualBlock] = ResidualBlock
) -> nn.Sequential:
    """Makes the residual network of IMPALA (Espeholt et al. 2018, figure 3). channels: number of channels of
    the image."""
    layers: list[nn.Module] = [ToChannelsLast()]
    for out_channels in RESNET_IMPALA_CHANNELS:
        layers += [
            Conv2d(channels, out_channels, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            block(flags, out_channels),
            block(flags, out_channels),
        ]
        channels = out_channels
    return nn.Sequential(*layers)
