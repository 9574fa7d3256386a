"""How an observation holds an image."""

from typing import NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.spaces.observations import Indices

CHANNELS = (1, 2, 3, 4)  # usual numbers of channels: grey, two layers of a map, RGB, RGBA or four frames


class ImageShape(NamedTuple):
    """Size of one image, without the batch."""

    channels: int
    height: int
    width: int


class ImageLayout(NamedTuple):
    """How an observation holds an image.

    is_stack: the first axis counts images; their channels are concatenated.
    is_hwc: the last axis counts channels.
    is_plane: there is no axis of channels.
    """

    size: ImageShape
    is_stack: bool
    is_hwc: bool
    is_plane: bool


def image_layout(shape: tuple[int, ...]) -> ImageLayout:
    """Returns how an observation of this shape, of 2 to 4 dimensions, holds an image.

    The shape is (height, width) or (channels, height, width). It is (height, width, channels) if only the
    last number is a usual number of channels, or if only the first two are equal. A fourth dimension in front
    counts images.
    """
    if len(shape) == 2:
        return ImageLayout(ImageShape(1, *shape), is_stack=False, is_hwc=False, is_plane=True)
    *stack, first, second, last = shape
    is_hwc = (last in CHANNELS and first not in CHANNELS) or first == second != last
    size = ImageShape(last, first, second) if is_hwc else ImageShape(first, second, last)
    if stack:
        size = size._replace(channels=stack[0] * size.channels)
    return ImageLayout(size, bool(stack), is_hwc, is_plane=False)


def is_image(space: gym.spaces.Box) -> bool:
    """Returns whether an observation is an image or a stack of images, rather than a table of numbers.

    Bytes are images if they have 2 to 4 dimensions; floats only with 3 or 4.
    """
    least = 3 if space.dtype == np.float32 else 2
    return not isinstance(space, Indices) and least <= len(space.shape) <= 4
