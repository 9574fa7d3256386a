"""Chooses the built-in network that encodes an observation, by its space and the flags. No torch."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.sections import ModelFlags
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import CHANNELS, ImageLayout, ImageShape, Indices, image_layout


class Conv(NamedTuple):
    """Parameters of a square convolution: output channels; kernel, stride and padding in pixels."""

    channels: int
    kernel: int
    stride: int
    padding: int = 0


CONVNETS: Mapping[str, tuple[Conv, ...]] = {
    "convnet_simple": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(128, 3, 2)),
    "convnet_impala": (Conv(16, 8, 4), Conv(32, 4, 2)),
    "convnet_atari": (Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)),
    "convnet_medium": (Conv(32, 4, 4), Conv(64, 3, 2)),
    "convnet_small": (Conv(32, 3, 1, 1), Conv(64, 3, 2, 1), Conv(64, 3, 2, 1)),
    "minigrid_convnet_tiny": (Conv(16, 3, 1), Conv(32, 2, 1), Conv(64, 2, 1)),
}
SMALL = "convnet_small"
# The preset is chosen by the size and the cost of each image. cfg.json has this name, and the choice is made
# again wherever weights are loaded: changes of the rule need a new name.
AUTO = "auto"
LARGE = "convnet_atari"  # where it fits
FOR_SMALL = (SMALL, "convnet_medium", "convnet_impala")  # elsewhere, the most detailed first
MAX_MFLOP = 8.0  # of a default network for images, forward, per sample
RESNET = "resnet_impala"
V1_RESNET = "resnet_impala_v1"  # as version 1 computed it, for networks that were trained there
RESNETS = (RESNET, V1_RESNET)
RESNET_IMPALA_CHANNELS = (16, 32, 32)  # after each halving of the image
MLP = "mlp"
TABLE = "table"
MAX_TABLE_BYTES = 4 * 2**30
# In a smaller image, such as a board of 3x3 fields, convolutions share weights between too few places.
MIN_SMALL_SIDE = 5  # pixels
MAX_BOARD_SIDE = 20  # fields, of a board of many planes; images of that many channels are larger
MAX_LISTED = 10  # numbers of choices in a line of the log


class EncoderChoice(NamedTuple):
    """Describes the network that encodes one observation, and why it is not the one that the flags name."""

    preset: str  # MLP, TABLE, or a name in RESNETS or CONVNETS
    widths: tuple[int, ...] = ()  # of an MLP's layers; with TABLE, the first is the width of the table
    image: ImageLayout | None = None  # None for MLP and TABLE
    reason: str = ""  # why it is not the preset of the flags; empty if it is

    def __str__(self) -> str:
        """Describes the network on one line."""
        name = self.preset
        if self.preset in (MLP, TABLE):
            before = "table lookup, then " if self.preset == TABLE else ""
            name = " ".join(map(str, (f"{before}MLP", *self.widths)))
        return f"{name} ({self.reason})" if self.reason else name


def choose_encoder(flags: ModelFlags, key: str, space: gym.spaces.Box) -> EncoderChoice:
    """Chooses the network that encodes one observation, by its space and the flags.

    Discrete and MultiDiscrete observations get a lookup table, vectors and scalars an MLP. Images get the
    preset of the flags if they are large enough for it. Smaller images get an MLP if they are tiny or are
    tables of numbers (2-dimensional floats). Otherwise they get small convolutions: boards, and all such
    images if the flags name a preset, get SMALL; with AUTO, pictures get `affordable_preset`.

    Raises ValueError for more than 4 dimensions, or if the table would be huge.
    """
    if isinstance(space, Indices):
        return _table(flags, key, space)
    shape = space.shape
    if len(shape) > 4:
        raise ValueError(
            f"observation {describe_space(key, space)} has more than 4 dimensions, for which there is no "
            "built-in encoder; flatten it in the env, or register an encoder for it (--encoder_custom)"
        )
    named = preset_of_flags(flags)
    preset = LARGE if named == AUTO else named
    mlp = EncoderChoice(MLP, mlp_widths(flags))
    if len(shape) < 2 or preset == MLP:
        return mlp
    image = image_layout(shape)
    side = min(image.size[1:])
    if side >= smallest_side(preset):
        return EncoderChoice(preset, image=image)
    if image.is_plane and space.dtype == np.float32:
        return mlp._replace(reason=f"a table, too small for {preset}")
    if side < MIN_SMALL_SIDE:
        return mlp._replace(reason=f"too small for {preset}")
    if named == AUTO:
        is_board = max(image.size[1:]) <= MAX_BOARD_SIDE and not _has_pixels(space, image)
        return EncoderChoice(SMALL if is_board else affordable_preset(flags, image.size), image=image)
    return EncoderChoice(SMALL, image=image, reason=_needs(preset))


def _has_pixels(space: gym.spaces.Box, image: ImageLayout) -> bool:
    """Returns whether an observation is a picture rather than the planes of a board, judged by its number of
    channels and its range of values."""
    has_bytes = space.dtype == np.uint8 and bool(space.high.max() > 1)
    return image.is_stack or image.size.channels in CHANNELS or has_bytes


def affordable_preset(flags: ModelFlags, image: ImageShape) -> str:
    """Chooses convolutions for a picture that is too small for the preset LARGE: returns the first (most
    detailed) preset of FOR_SMALL that accepts the image and takes at most MAX_MFLOP per sample; if there is
    none, the cheapest preset of FOR_SMALL that accepts the image."""
    fitting = [preset for preset in FOR_SMALL if min(image[1:]) >= smallest_side(preset)]
    costs = {preset: mflop(flags, preset, image) for preset in fitting}
    cheap = [preset for preset in fitting if costs[preset] <= MAX_MFLOP]
    return cheap[0] if cheap else min(fitting, key=costs.__getitem__)


def _needs(preset: str) -> str:
    side = smallest_side(preset)
    return f"{preset} needs {side}x{side} pixels"


def _table(flags: ModelFlags, key: str, space: Indices) -> EncoderChoice:
    widths = mlp_widths(flags) or (flags.hidden_size,)
    num_bytes = 4 * sum(space.sizes) * widths[0]
    if num_bytes > MAX_TABLE_BYTES:
        raise ValueError(
            f"observation {describe_space(key, space)} needs a table of {num_bytes / 2**30:,.0f} GB, "
            f"{widths[0]} numbers per choice; at most {MAX_TABLE_BYTES / 2**30:.0f} GB are allowed: use "
            "smaller --encoder_mlp_layers, or a Box space in the env"
        )
    return EncoderChoice(TABLE, widths)


def preset_of_flags(flags: ModelFlags) -> str:
    """Returns the network for images that the flags name: AUTO, MLP, or a preset in RESNETS or CONVNETS."""
    if flags.encoder_type == "resnet":
        return V1_RESNET if flags.encoder_subtype == V1_RESNET else RESNET
    if flags.encoder_type == "mlp" or flags.encoder_subtype == "mlp_mujoco":
        return MLP
    return flags.encoder_subtype


def mlp_widths(flags: ModelFlags) -> tuple[int, ...]:
    """Returns the widths of the fully connected layers that encode vectors, tables and flattened images."""
    is_mujoco = flags.encoder_type != "resnet" and flags.encoder_subtype == "mlp_mujoco"
    return (flags.hidden_size,) * 2 if is_mujoco else flags.encoder_mlp_layers


def conv_mlp_widths(flags: ModelFlags) -> tuple[int, ...]:
    """Returns the widths of the fully connected layers after the convolutions of an image encoder."""
    return flags.encoder_conv_mlp_layers or (flags.hidden_size,) * flags.encoder_extra_fc_layers


def convolved(preset: str, image: ImageShape) -> ImageShape:
    """Returns the shape to which the convolutions of a preset map an image."""
    return [image, *(output for output, _ in _convolutions(preset, image))][-1]


def mflop(flags: ModelFlags, preset: str, image: ImageShape) -> float:
    """Returns the cost of encoding one image with a preset and the fully connected layers after it, in MFLOP:
    two operations per multiplication, forward pass only. Training takes about three times as many."""
    products = sum(math.prod(output) * inputs for output, inputs in _convolutions(preset, image))
    widths = (math.prod(convolved(preset, image)), *conv_mlp_widths(flags))
    return 2e-6 * (products + sum(n * width for n, width in itertools.pairwise(widths)))


def _convolutions(preset: str, image: ImageShape) -> Iterator[tuple[ImageShape, int]]:
    """Yields (output shape, number of inputs of each output element) for each convolution of a preset that
    encodes an image."""
    if preset in RESNETS:
        for channels in RESNET_IMPALA_CHANNELS:
            yield image._replace(channels=channels), image.channels * 9
            image = ImageShape(channels, (image.height + 1) // 2, (image.width + 1) // 2)
            yield from ((image, channels * 9) for _ in range(4))
    for conv in CONVNETS.get(preset, ()):
        height, width = ((side + 2 * conv.padding - conv.kernel) // conv.stride + 1 for side in image[1:])
        num_inputs = image.channels * conv.kernel**2
        image = ImageShape(conv.channels, height, width)
        yield image, num_inputs


def describe_costs(flags: ModelFlags, observation_space: gym.spaces.Dict) -> list[str]:
    """Returns warnings for the log, one for each image with a network that costs more than MAX_MFLOP and was
    chosen by `choose_encoder`, not named by a flag."""
    lines = []
    for key, space in grouped_spaces(observation_space).items():
        choice = choose_encoder(flags, key, space)
        if choice.image is None or (preset_of_flags(flags) != AUTO and not choice.reason):
            continue
        size = choice.image.size
        cost = mflop(flags, choice.preset, size)
        if cost <= MAX_MFLOP:
            continue
        ways = ["a smaller picture", "an encoder of your own (--encoder_custom)"]
        for name in (AUTO, "convnet_impala"):
            other = choose_encoder(replace(flags, encoder_type="conv", encoder_subtype=name), key, space)
            less = mflop(flags, other.preset, size)
            if less < cost and not other.reason:
                ways.insert(1, f"--encoder_subtype={name}, which takes {less:.0f}")
                break
        lines.append(
            f"observation {describe_space(key, space)}: {choice.preset} takes {cost:.0f} MFLOP a sample, and "
            f"more than {MAX_MFLOP:.0f} make training on a CPU slow; use {', or '.join(ways)}"
        )
    return lines


def smallest_side(preset: str) -> int:
    """Returns the side, in pixels, of the smallest square image that a preset accepts."""
    side = 1
    for conv in reversed(CONVNETS.get(preset, ())):
        side = max(1, (side - 1) * conv.stride + conv.kernel - 2 * conv.padding)
    return side


def encoded_spaces(observation_space: gym.spaces.Dict) -> dict[str, gym.spaces.Box]:
    """Returns the spaces of the observations that are encoded, all but the action mask, in the order of
    sorted keys. Raises ValueError if there are none."""
    encoded = {}
    for key in sorted(observation_space.spaces):
        space = observation_space[key]
        assert isinstance(space, gym.spaces.Box), f"{observation_space} must be a Dict of Box"
        if key != ACTION_MASK:
            encoded[key] = space
    if not encoded:
        raise ValueError(f"there is nothing to encode in {observation_space}: {ACTION_MASK} is no input")
    return encoded


def input_groups(spaces: Mapping[str, gym.spaces.Box]) -> list[tuple[str, ...]]:
    """Groups the keys of observations by the network that encodes them: one for all vectors and scalars
    together, and one for each other observation.

    One MLP on all vectors can combine them, such as a position with a goal; separate MLPs could not.
    """
    vectors = tuple(
        key for key, space in spaces.items() if not isinstance(space, Indices) and len(space.shape) < 2
    )
    groups = [vectors if key in vectors else (key,) for key in spaces]
    return list(dict.fromkeys(groups))


def grouped_spaces(observation_space: gym.spaces.Dict) -> dict[str, gym.spaces.Box]:
    """Returns the input space of each network that encodes observations, by the keys of its observations,
    e.g. "goal, position". Several vectors are concatenated to one."""
    each = encoded_spaces(observation_space)
    spaces = {}
    for keys in input_groups(each):
        size = sum(math.prod(each[key].shape) for key in keys)
        joined = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        spaces[", ".join(keys)] = each[keys[0]] if len(keys) == 1 else joined
    return spaces


def describe_space(key: str, space: gym.spaces.Box) -> str:
    """Returns key, dtype and shape of an observation, e.g. "obs uint8 [7, 7, 3]" or "obs Discrete [16]"."""
    if isinstance(space, Indices):
        sizes = list(space.sizes)
        if len(sizes) > MAX_LISTED:
            return f"{key} Discrete {list(space.shape)}, up to {max(sizes)} choices"
        return f"{key} Discrete {sizes}"
    return f"{key} {space.dtype} {list(space.shape)}"


def describe_encoders(flags: ModelFlags, observation_space: gym.spaces.Dict, typed: Mapping[str, Any]) -> str:
    """Returns a line for the log that names the network of each observation.

    typed: flags that the user has set, by name. Raises ValueError if these name a preset for which no
    observation is large enough, or if an observation has too many dimensions.
    """
    spaces = grouped_spaces(observation_space)
    choices = {key: choose_encoder(flags, key, space) for key, space in spaces.items()}
    named = preset_of_flags(flags)
    rejected = [key for key, choice in choices.items() if choice.reason and _contradicts(choice, typed)]
    if rejected and not any(choice.image and not choice.reason for choice in choices.values()):
        key = rejected[0]
        fallback = choices[key]._replace(reason="")
        names = [f"--{name}={typed[name]}" for name in ("encoder_type", "encoder_subtype") if name in typed]
        raise ValueError(
            f"{' '.join(names)}: {_needs(LARGE if named == AUTO else named)}, but observation "
            f"{describe_space(key, spaces[key])} is smaller; "
            f"without the flag it gets {fallback}; --encoder_type=mlp or resnet takes any size"
        )
    return "; ".join(f"{describe_space(key, spaces[key])}: {choice}" for key, choice in choices.items())


def _contradicts(choice: EncoderChoice, typed: Mapping[str, Any]) -> bool:
    """Returns whether the user has asked for another encoder than `choice`, which was chosen in place of the
    preset of the flags (choice.reason says why). typed: flags that the user has set, by name."""
    return typed.get("encoder_subtype", AUTO) != AUTO or (
        typed.get("encoder_type") == "conv" and choice.preset == MLP
    )
