"""From normalised observations to one vector of features per row."""

from collections.abc import Mapping
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.elu import ELU
from sample_factory.models.encoder_registry import resolve_encoder
from sample_factory.models.packed import Conv2d, Linear, conv2d
from sample_factory.spaces.actions import ACTION_MASK

ACTIVATIONS = {"elu": ELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Conv(NamedTuple):
    """One convolution without padding."""

    channels: int
    kernel: int
    stride: int


CONVNETS = {
    "convnet_simple": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(128, 3, 2)),
    "convnet_impala": (Conv(16, 8, 4), Conv(32, 4, 2)),
    "convnet_atari": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)),
}
RESNET_IMPALA_CHANNELS = (16, 32, 32)


def make_encoder(flags: ModelFlags, observation_space: gym.spaces.Dict) -> nn.Module:
    """The encoder that the flags ask for: --encoder_custom, or one that concatenates all observations.

    Raises ValueError for an unknown name or an observation that no preset can encode.
    """
    if flags.encoder_custom is None:
        return MultiInputEncoder(flags, observation_space)
    encoder = resolve_encoder(flags.encoder_custom)(flags, observation_space)
    if not isinstance(getattr(encoder, "out_size", None), int):
        kind = type(encoder).__name__
        raise TypeError(f"encoder {flags.encoder_custom!r}: {kind} needs an int attribute out_size")
    return encoder


def mlp(flags: ModelFlags, in_size: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Linear layers, an activation after each; none for no widths. [B, in_size] to [B, widths[-1]]."""
    layers = []
    for width in widths:
        layers += [Linear(in_size, width), ACTIVATIONS[flags.nonlinearity]()]
        in_size = width
    return nn.Sequential(*layers)


class MultiInputEncoder(nn.Module):
    """Every observation has an encoder of its own; their outputs are concatenated, keys sorted."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.keys = tuple(key for key in sorted(observation_space.spaces) if key != ACTION_MASK)
        if not self.keys:
            raise ValueError(f"nothing to encode in {observation_space}")
        self.encoders = nn.ModuleList(
            make_observation_encoder(flags, key, observation_space[key].shape) for key in self.keys
        )
        self.out_size = sum(encoder.out_size for encoder in self.encoders)

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """[B, ...] per key to [B, out_size]."""
        outputs = [encoder(observations[key]) for key, encoder in zip(self.keys, self.encoders)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


def make_observation_encoder(flags: ModelFlags, key: str, shape: tuple[int, ...]) -> nn.Module:
    """The encoder of one observation: [B, *shape] float to [B, out_size].

    Images (2 or 3 dimensions) get the preset of the flags, vectors and scalars an MLP. Raises ValueError for
    more dimensions, or when the image is too small for the preset.
    """
    if len(shape) > 3:
        raise ValueError(f"observation {key!r} of shape {shape}: over 3 dimensions; register an encoder")
    preset = "resnet_impala" if flags.encoder_type == "resnet" else flags.encoder_subtype
    if len(shape) < 2 or flags.encoder_type == "mlp" or preset == "mlp_mujoco":
        widths = (flags.hidden_size,) * 2 if preset == "mlp_mujoco" else flags.encoder_mlp_layers
        return VectorEncoder(flags, shape, widths)
    try:
        return ImageEncoder(flags, shape, preset)
    except ImageTooSmall as error:
        raise ValueError(f"observation {key!r} of shape {shape}: {error}") from None


class VectorEncoder(nn.Module):
    """Flattens an observation of any shape, then an MLP: [B, *shape] to [B, widths[-1]]."""

    def __init__(self, flags: ModelFlags, shape: tuple[int, ...], widths: tuple[int, ...]):
        super().__init__()
        in_size = torch.Size(shape).numel()
        self.layers = mlp(flags, in_size, widths)
        self.out_size = widths[-1] if widths else in_size

    def forward(self, x: Tensor) -> Tensor:
        """[B, *shape] to [B, out_size]."""
        return self.layers(x.reshape(x.shape[0], -1))


class ImageTooSmall(ValueError):
    """A convolution has no room in its input."""


class ImageEncoder(nn.Module):
    """Convolutions, then fully connected layers: [B, *shape] to [B, out_size].

    shape: (channels, height, width); (height, width, channels) when only the last number looks like channels
    (1, 3 or 4); or (height, width).
    """

    def __init__(self, flags: ModelFlags, shape: tuple[int, ...], preset: str):
        super().__init__()
        self.is_plane = len(shape) == 2
        self.is_hwc = len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4)
        if self.is_plane:
            shape = (1, *shape)
        elif self.is_hwc:
            shape = (shape[2], *shape[:2])
        make_convolutions = resnet_impala if preset == "resnet_impala" else convnet
        self.convolutions, out_shape = make_convolutions(flags, preset, shape)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        flat_size = torch.Size(out_shape).numel()
        widths = flags.encoder_conv_mlp_layers or (flags.hidden_size,) * flags.encoder_extra_fc_layers
        self.fully_connected = mlp(flags, flat_size, widths)
        self.out_size = widths[-1] if widths else flat_size

    def forward(self, x: Tensor) -> Tensor:
        """[B, *shape] to [B, out_size]."""
        if self.is_plane:
            x = x.unsqueeze(1)
        elif self.is_hwc:
            x = x.permute(0, 3, 1, 2)
        # The last activation comes after the flattening: before it, its gradient would have another memory
        # format than its input, which takes ten times as long.
        return self.fully_connected(self.activation(self.convolutions(x).flatten(1)))


class ToChannelsLast(nn.Module):
    """Changes the memory format of [B, C, H, W], which convolutions after it keep: it is the faster one."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


class PatchConv2d(Conv2d):
    """The same function as nn.Conv2d without padding, for a kernel that is a multiple of the stride.

    Squares of stride x stride pixels become channels, and the kernel moves over squares: with the 3 channels
    of a picture a convolution has too little to do per pixel. 8x8 with stride 4 over 3 channels is 2x2 over
    48. Measured (2,112 pictures of 72x128 through convnet_simple, one core, forward and backward): 937
    instead of 1,416 ms in float32, 400 instead of 586 ms in bfloat16.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, out_channels, H', W'], in channels_last format."""
        x = pixels_to_channels(x, self.stride[0])
        return conv2d(x, self.weight, self.bias, self._packed, rearrange=self._over_squares)

    def _over_squares(self, weight: Tensor) -> Tensor:
        """[out_channels, in_channels, kernel, kernel] to the weight of a convolution over squares."""
        side, squares = self.stride[0], self.kernel_size[0] // self.stride[0]
        weight = weight.view(self.out_channels, self.in_channels, squares, side, squares, side)
        return weight.permute(0, 2, 4, 1, 3, 5).flatten(3).permute(0, 3, 1, 2)


# A type to copy with, for each number of bytes that a side of a square may take.
WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}


def pixels_to_channels(x: Tensor, side: int) -> Tensor:
    """[B, C, H, W] to [B, C * side * side, H // side, W // side], channels_last; as F.pixel_unshuffle."""
    batch, channels, height, width = x.shape
    rows, columns = height // side, width // side
    x = x[:, :, : rows * side, : columns * side]
    word = WORDS.get(side * x.element_size())
    if word and x.is_contiguous() and x.storage_offset() % side == 0 and not x.requires_grad:
        # Neighbouring pixels move as one word, a channel at a time: a small batch in a quarter of the time.
        words = x.view(word).view(batch, channels, rows, side, columns)
        squares = words.new_empty(batch, rows, columns, channels, side)
        for channel in range(channels):
            squares[:, :, :, channel].copy_(words[:, channel].transpose(2, 3))
        squares = squares.view(x.dtype)
    else:
        squares = x.reshape(batch, channels, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(batch, rows, columns, channels * side * side).permute(0, 3, 1, 2)


Shape = tuple[int, int, int]  # channels, height, width


def convnet(flags: ModelFlags, preset: str, shape: Shape) -> tuple[nn.Sequential, Shape]:
    """A plain stack of convolutions for images of `shape`, and the shape of its output.

    The activation after the last one is left to the caller.
    """
    channels, height, width = shape
    layers = []
    for conv in CONVNETS[preset]:
        if min(height, width) < conv.kernel:
            raise ImageTooSmall(
                f"{preset} gets down to {height}x{width} pixels before a convolution of "
                f"{conv.kernel}x{conv.kernel}; use a larger image or --encoder_type=mlp or resnet"
            )
        convolution = Conv2d if layers else PatchConv2d
        layers.append(convolution(channels, conv.channels, conv.kernel, conv.stride))
        layers.append(ACTIVATIONS[flags.nonlinearity]())
        channels = conv.channels
        height, width = ((size - conv.kernel) // conv.stride + 1 for size in (height, width))
    return nn.Sequential(*layers[:-1]), (channels, height, width)


class ResidualBlock(nn.Module):
    """x + conv3x3(act(conv3x3(act(x)))), [B, C, H, W]."""

    def __init__(self, flags: ModelFlags, channels: int):
        super().__init__()
        self.layers = nn.Sequential(
            ACTIVATIONS[flags.nonlinearity](),
            Conv2d(channels, channels, 3, padding=1),
            ACTIVATIONS[flags.nonlinearity](),
            Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def resnet_impala(flags: ModelFlags, preset: str, shape: Shape) -> tuple[nn.Sequential, Shape]:
    """The residual network of IMPALA (Espeholt et al. 2018, figure 3), as `convnet`."""
    channels, height, width = shape
    layers = [ToChannelsLast()]
    for out_channels in RESNET_IMPALA_CHANNELS:
        layers += [
            Conv2d(channels, out_channels, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(flags, out_channels),
            ResidualBlock(flags, out_channels),
        ]
        channels, height, width = out_channels, (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers), (channels, height, width)
