"""Observations as users' encoders and networks get them."""

from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import image_layout, is_image


class NetworkSpace(spaces.Dict):
    """The observation space that a user's encoder or network is given: without the action mask, and with
    every image as [channels, height, width]. stored: space of the same observations in the trajectory
    buffers, with images as the env returns them."""

    def __init__(self, stored: spaces.Dict):
        super().__init__(
            {key: _channels_first(box) for key, box in stored.spaces.items() if key != ACTION_MASK}
        )
        self.stored = stored


def _channels_first(space: spaces.Space[Any]) -> spaces.Space[Any]:
    assert isinstance(space, spaces.Box), f"{space} must be a Box"
    if not is_image(space):
        return space
    image = image_layout(space.shape)
    low, high = (np.moveaxis(bound, -1, -3) if image.is_hwc else bound for bound in (space.low, space.high))
    return spaces.Box(low.reshape(image.size), high.reshape(image.size), dtype=space.dtype.type)
