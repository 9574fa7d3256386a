"""How an observation holds an image."""

from typing import NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.spaces.observations import Indices

CHANNELS = (1, 2, 3, 4)  # usual numbers of them: grey, two layers of a map, RGB, and RGBA or four frames


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

    (height, width); (channels, height, width); or (height, width, channels) if only the last number looks
    like channels, or only the first two are equal. A fourth dimension before these counts images.
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
    """Returns whether an observation is an image or a stack of images, and no table of numbers.

    Bytes with 2 to 4 dimensions are images. Floats need at least 3: with 2, they are as often a table.
    """
    least = 3 if space.dtype == np.float32 else 2
    return not isinstance(space, Indices) and least <= len(space.shape) <= 4
