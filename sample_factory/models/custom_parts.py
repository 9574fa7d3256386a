"""Makes the parts of a network that users have written, and the observation space that these are given."""

import operator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.parameter import is_lazy

from sample_factory.config.flags import ConfigError
from sample_factory.config.sections import ModelFlags
from sample_factory.models.network_registry import (
    ACTOR_CRITIC,
    CORE,
    DECODER,
    ENCODER,
    NetworkError,
    resolve_factory,
)
from sample_factory.runtime.failures import one_line
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import image_layout, is_image

# The contract of each part's factory, for error messages.
_EXPECTED = {
    ENCODER: "factory(flags, observation_space) that returns a torch.nn.Module with an int out_size",
    CORE: "factory(flags, in_size) that returns a torch.nn.Module with ints out_size and state_size",
    DECODER: "factory(flags, in_size) that returns a torch.nn.Module with an int out_size",
    ACTOR_CRITIC: "factory(flags, observation_space, action_space) that returns a "
    "sample_factory.models.actor_critic.ActorCritic",
}


def make_custom_part(
    part: str, name: str, flags: ModelFlags, *inputs: object, returns: type[nn.Module] = nn.Module
) -> nn.Module:
    """Makes a user's part of a network: calls the factory that is registered for `part` (e.g. ENCODER) under
    `name`, with the flags and `inputs`.

    Raises ConfigError if there is no such factory; NetworkError if the factory raises or does not return an
    instance of `returns`, or if a parameter is lazy.
    """
    try:
        factory = resolve_factory(part, name)
    except (ImportError, ValueError) as error:
        message = str(error)
        flag = f"--{part}_custom={name}"
        raise ConfigError(message if message.startswith(flag) else f"{flag}: {message}") from None
    expected = f"it should be a {_EXPECTED[part]}"
    if not callable(factory):
        raise NetworkError(f"{describe(part, name)} is a {type(factory).__name__}; {expected}")
    called = f"{describe(part, name)}: its factory"
    try:
        module = factory(flags, *inputs)
    except NetworkError:  # of a part inside
        raise
    except Exception as error:
        raise NetworkError(f"{called} raised {one_line(error)}; {expected}") from error
    if not isinstance(module, returns):
        raise NetworkError(f"{called} returned a {type(module).__name__}; {expected}")
    lazy = [key for key, parameter in module.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise NetworkError(
            f"{describe(part, name)}: {lazy[0]} has no size yet, and processes share weights from the start; "
            "write a layer that is not lazy, with its size by the arguments of the factory, e.g. nn.Linear"
        )
    fill_gaps(module)
    return module


def fill_gaps(module: nn.Module) -> None:
    """Replaces parameters and buffers that have gaps or overlaps in memory, such as slices and expanded
    tensors, by contiguous copies, in place.

    Fused optimizers assume that the elements of a parameter are contiguous, and would otherwise overwrite
    other memory. torch cannot load a state into a tensor with overlapping elements.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        has_strides = tensor.layout == torch.strided and not is_lazy(tensor)
        if has_strides and tensor.stride() != torch.empty_like(tensor).stride():  # which has neither
            tensor.data = tensor.data.clone()


def describe(part: str, name: str) -> str:
    """Returns how error messages name a part, e.g. "core gated" or "actor-critic mine"."""
    return f"{part.replace('_', '-')} {name}"


def out_size(module: nn.Module, part: str = ENCODER) -> int:
    """Returns the width of a module's output. Raises NetworkError without an int attribute `out_size`."""
    return int_attribute(module, "out_size", "the width of its output", part)


def int_attribute(module: nn.Module, attribute: str, meaning: str, part: str) -> int:
    """Returns an int attribute of a user's part. Raises NetworkError, with the meaning of the attribute, if
    it is missing or no int. meaning: e.g. "the width of its output". part: e.g. ENCODER."""
    needs = f"{describe(part, type(module).__name__)} needs an int attribute {attribute}, {meaning}"
    try:
        return operator.index(operator.attrgetter(attribute)(module))
    except (AttributeError, TypeError) as error:
        raise NetworkError(f"{needs}: {error}") from None


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
