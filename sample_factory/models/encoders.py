"""Encoders: normalised observations to one vector of features per row."""

from collections.abc import Mapping
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cpu_layers import ELU, Conv2d, Linear, PatchConv2d, ToChannelsLast
from sample_factory.models.encoder_registry import resolve_encoder
from sample_factory.spaces.actions import ACTION_MASK

ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": ELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Conv(NamedTuple):
    """A convolution without padding."""

    channels: int
    kernel: int
    stride: int


CONVNETS = {
    "convnet_simple": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(128, 3, 2)),
    "convnet_impala": (Conv(16, 8, 4), Conv(32, 4, 2)),
    "convnet_atari": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)),
}
RESNET_IMPALA_CHANNELS = (16, 32, 32)
VIZDOOM_MEASUREMENTS_WIDTHS = (128, 128)


def make_encoder(flags: ModelFlags, observation_space: gym.spaces.Dict) -> nn.Module:
    """Returns the encoder that the flags ask for: --encoder_custom, or a MultiInputEncoder.

    Raises ValueError for an unknown name or an observation that no preset can encode, TypeError for a custom
    encoder without an int attribute out_size.
    """
    if flags.encoder_custom is None:
        return MultiInputEncoder(flags, observation_space)
    encoder: nn.Module = resolve_encoder(flags.encoder_custom)(flags, observation_space)
    out_size(encoder)
    return encoder


def out_size(encoder: nn.Module) -> int:
    """Returns the number of features per row. Raises TypeError without an int attribute out_size."""
    try:
        size = encoder.out_size
    except AttributeError:
        size = None
    if not isinstance(size, int):
        raise TypeError(f"encoder {type(encoder).__name__} needs an int attribute out_size")
    return size


def mlp(flags: ModelFlags, in_size: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Returns linear layers with an activation after each; [B, in_size] to [B, widths[-1]].

    Without widths it passes its input on.
    """
    layers: list[nn.Module] = []
    for width in widths:
        layers += [Linear(in_size, width), ACTIVATIONS[flags.nonlinearity]()]
        in_size = width
    return nn.Sequential(*layers)


class MultiInputEncoder(nn.Module):
    """An encoder for each observation; their outputs are concatenated in the order of sorted keys."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.keys = tuple(key for key in sorted(observation_space.spaces) if key != ACTION_MASK)
        if not self.keys:
            raise ValueError(f"there is nothing to encode in {observation_space}")
        self.encoders = nn.ModuleList(
            make_observation_encoder(flags, key, box_shape(observation_space, key)) for key in self.keys
        )
        self.out_size = sum(out_size(encoder) for encoder in self.encoders)

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps [B, ...] per key to [B, out_size]."""
        outputs = [encoder(observations[key]) for key, encoder in zip(self.keys, self.encoders)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


def box_shape(observation_space: gym.spaces.Dict, key: str) -> tuple[int, ...]:
    """Returns the shape of one observation; every observation is a Box."""
    shape = observation_space[key].shape
    assert shape is not None
    return shape


def make_observation_encoder(
    flags: ModelFlags, key: str, shape: tuple[int, ...]
) -> "VectorEncoder | ImageEncoder":
    """Returns the encoder of one observation: [B, *shape] float to [B, out_size].

    Images (2 or 3 dimensions) get the preset of the flags, vectors and scalars an MLP. Raises ValueError for
    more dimensions, or if the image is too small for the preset.
    """
    if len(shape) > 3:
        raise ValueError(
            f"observation {key!r} of shape {shape} has more than 3 dimensions; register an encoder for it"
        )
    preset = "resnet_impala" if flags.encoder_type == "resnet" else flags.encoder_subtype
    if len(shape) < 2 or flags.encoder_type == "mlp" or preset == "mlp_mujoco":
        widths = (flags.hidden_size,) * 2 if preset == "mlp_mujoco" else flags.encoder_mlp_layers
        return VectorEncoder(flags, shape, widths)
    try:
        return ImageEncoder(flags, shape, preset)
    except ImageTooSmall as error:
        raise ValueError(f"observation {key!r} of shape {shape}: {error}") from None


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


class ImageTooSmall(ValueError):
    """A convolution's kernel is larger than its input."""


class ImageEncoder(nn.Module):
    """Convolutions, then fully connected layers: [B, *shape] to [B, out_size].

    shape: (channels, height, width); (height, width, channels) if only the last number looks like channels
        (1, 3 or 4); or (height, width).
    """

    def __init__(self, flags: ModelFlags, shape: tuple[int, ...], preset: str):
        super().__init__()
        self.is_plane = len(shape) == 2
        self.is_hwc = len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4)
        if self.is_plane:
            image = ImageShape(1, height=shape[0], width=shape[1])
        elif self.is_hwc:
            image = ImageShape(shape[2], height=shape[0], width=shape[1])
        else:
            image = ImageShape(shape[0], height=shape[1], width=shape[2])
        if preset == "resnet_impala":
            self.convolutions, out_shape = resnet_impala(flags, image)
        else:
            self.convolutions, out_shape = convnet(flags, preset, image)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        flat_size = out_shape.channels * out_shape.height * out_shape.width
        widths = flags.encoder_conv_mlp_layers or (flags.hidden_size,) * flags.encoder_extra_fc_layers
        self.fully_connected = mlp(flags, flat_size, widths)
        self.out_size = widths[-1] if widths else flat_size

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, *shape] to [B, out_size]."""
        if self.is_plane:
            x = x.unsqueeze(1)
        elif self.is_hwc:
            x = x.permute(0, 3, 1, 2)
        # The last activation is applied after flattening: before it, its gradient would have another memory
        # format than its input, which takes ten times as long.
        features: Tensor = self.fully_connected(self.activation(self.convolutions(x).flatten(1)))
        return features


class ImageShape(NamedTuple):
    """Shape of one image, without the batch."""

    channels: int
    height: int
    width: int


def convnet(flags: ModelFlags, preset: str, shape: ImageShape) -> tuple[nn.Sequential, ImageShape]:
    """Returns a plain stack of convolutions for images of `shape`, and the shape of its output.

    The activation after the last convolution is left to the caller. Raises ImageTooSmall.
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for conv in CONVNETS[preset]:
        if min(height, width) < conv.kernel:
            raise ImageTooSmall(
                f"{preset} is down to {height}x{width} pixels before a convolution of "
                f"{conv.kernel}x{conv.kernel}; use a larger image or --encoder_type=mlp or resnet"
            )
        convolution = Conv2d if layers else PatchConv2d
        layers.append(convolution(channels, conv.channels, conv.kernel, conv.stride))
        layers.append(ACTIVATIONS[flags.nonlinearity]())
        channels = conv.channels
        height, width = ((size - conv.kernel) // conv.stride + 1 for size in (height, width))
    return nn.Sequential(*layers[:-1]), ImageShape(channels, height, width)


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
        residual: Tensor = self.layers(x)
        return x + residual


def resnet_impala(flags: ModelFlags, shape: ImageShape) -> tuple[nn.Sequential, ImageShape]:
    """Returns the residual network of IMPALA (Espeholt et al. 2018, figure 3), like `convnet`."""
    channels, height, width = shape
    layers: list[nn.Module] = [ToChannelsLast()]
    for out_channels in RESNET_IMPALA_CHANNELS:
        layers += [
            Conv2d(channels, out_channels, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(flags, out_channels),
            ResidualBlock(flags, out_channels),
        ]
        channels = out_channels
        height = (height + 1) // 2
        width = (width + 1) // 2
    return nn.Sequential(*layers), ImageShape(channels, height, width)


class VizdoomEncoder(nn.Module):
    """Encoder of the VizDoom family, --encoder_custom=vizdoom.

    Encodes the picture `obs` with the preset of the flags and, if the space has them, `measurements` with a
    small MLP; concatenates both.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.image_encoder = make_observation_encoder(flags, "obs", box_shape(observation_space, "obs"))
        self.out_size = self.image_encoder.out_size
        self.measurements_encoder: nn.Sequential | None = None
        if "measurements" in observation_space.spaces:
            (num_measurements,) = box_shape(observation_space, "measurements")
            self.measurements_encoder = mlp(flags, num_measurements, VIZDOOM_MEASUREMENTS_WIDTHS)
            self.out_size += VIZDOOM_MEASUREMENTS_WIDTHS[-1]

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps obs [B, *shape] and measurements [B, M] to [B, out_size]."""
        features: Tensor = self.image_encoder(observations["obs"])
        if self.measurements_encoder is None:
            return features
        return torch.cat((features, self.measurements_encoder(observations["measurements"])), dim=-1)
