"""Converts observations of any supported Gymnasium space to a flat dict of arrays, which is stored; and says
which of them are images."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sample_factory.runtime.failures import Explained
from sample_factory.runtime.log import log

STORED_DTYPES = (np.uint8, np.int8, np.float32)  # every other dtype is stored as float32
MAX_CHOICES = 2**31 - 1  # indices are stored as int32
CHANNELS = (1, 2, 3, 4)  # usual numbers of channels: grey, two layers of a map, RGB, RGBA or four frames


class UnsupportedSpace(Explained, ValueError):
    """Raised for a space that the framework cannot store; the message names it and what is supported."""


class Indices(spaces.Box):
    """The stored form of a Discrete or MultiDiscrete observation: K indices from 0, int32 [K].

    A network looks them up in a table instead of multiplying one-hot vectors, which could be huge. A family
    may also use it in its observation space, with any shape of K elements, such as the cells of a grid.
    """

    def __init__(self, sizes: Any):
        """Creates an int32 Box with the shape of `sizes`, the number of choices of each component, an array
        of ints or nested sequences."""
        super().__init__(0, np.array(sizes) - 1, dtype=np.int32)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of choices of each component, in the order of the flattened array, [K]."""
        return tuple(int(last) + 1 for last in self.high.ravel())


class ObservationLayout(NamedTuple):
    """Describes how observations are stored: the flat Dict of Box spaces in which an env's observation space
    is stored, and the function that converts an observation to arrays of these spaces."""

    space: spaces.Dict
    flatten: Callable[[Any], Mapping[str, np.ndarray]]


def observation_layout(space: spaces.Space[Any]) -> ObservationLayout:
    """Returns the layout in which observations of a space are stored.

    Entries of a Dict keep their keys, and nested keys are joined by '/'. Entries of a Tuple are called obs_0,
    obs_1, ..., and an observation that is neither a Dict nor a Tuple is called 'obs'.

    A Box stays a Box (float64 and wide integers become float32), Discrete and MultiDiscrete become Indices,
    MultiBinary becomes a Box of float32. Texts in a Dict or Tuple are left out, with a warning. Raises
    UnsupportedSpace for other spaces, and if two parts get the same key, such as "a/b" and "b" in "a".
    """
    return _layout(space, is_batch=False)


def leaf_spaces(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """Returns the parts of an env's observation space, unconverted, by the keys of `observation_layout`."""
    return {key: leaf for key, _, leaf in _leaves(space, "", ())}


def batch_layout(space: spaces.Space[Any]) -> ObservationLayout:
    """Returns the same as `observation_layout`, except that `flatten` converts a batch of observations as
    Gymnasium's VectorEnvs return it: each part of a Dict or Tuple is an array [B, ...]."""
    return _layout(space, is_batch=True)


def without_entries(space: spaces.Dict, keys: Collection[str], prefix: str = "") -> spaces.Dict:
    """Returns a Dict space without the entries `keys`, e.g. without observations that only the critic gets.
    keys: "outer/inner" is an entry of a nested Dict. prefix: path of `space` in the whole Dict, used in
    recursion."""
    if not keys:
        return space
    kept = {}
    for name, child in space.spaces.items():
        if isinstance(child, spaces.Dict):
            child = without_entries(child, keys, f"{prefix}{name}/")
            if not child.spaces:
                continue
        if f"{prefix}{name}" not in keys:
            kept[name] = child
    return spaces.Dict(kept)


def _layout(space: spaces.Space[Any], is_batch: bool) -> ObservationLayout:
    leaves = list(_leaves(space, "", ()))
    keys = [key for key, _, _ in leaves]
    for key in keys:
        if keys.count(key) > 1:
            raise UnsupportedSpace(
                f"two observations are called {key!r} as parts of {space}; rename one of them"
            )
    boxes: dict[str, spaces.Space[Any]] = {key: _stored_space(leaf, key) for key, _, leaf in leaves}
    conversions = [(key, path, _conversion(leaf, key, is_batch)) for key, path, leaf in leaves]

    def flatten(observation: Any) -> dict[str, np.ndarray]:
        flat = {}
        for key, path, convert in conversions:
            value = observation
            for part in path:
                value = value[part]
            flat[key] = convert(value)
        return flat

    return ObservationLayout(spaces.Dict(boxes), flatten)


def _leaves(
    space: spaces.Space[Any], prefix: str, path: tuple[Any, ...]
) -> Iterator[tuple[str, tuple[Any, ...], spaces.Space[Any]]]:
    """Yields the key, the path and the space of each leaf of a (nested) Dict or Tuple.

    A path has the keys and indices that lead to the value in the user's observation.
    """
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _leaves(child, f"{prefix}/{key}" if prefix else str(key), (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, child in enumerate(space.spaces):
            yield from _leaves(child, f"{prefix or 'obs'}_{i}", (*path, i))
    elif path and space.dtype is not None and space.dtype.kind == "U":  # Text, and texts of envs' own spaces
        _warn_of_text(prefix)
    else:
        yield prefix or "obs", path, space


@functools.cache  # once in a process, which may make many envs
def _warn_of_text(key: str) -> None:
    log.warning("Observation %r is a text, which policies cannot read; it is left out", key)


def _stored_space(space: spaces.Space[Any], key: str) -> spaces.Box:
    if isinstance(space, Indices):
        return space
    if space.shape is not None and 0 in space.shape:
        raise UnsupportedSpace(f"observation {key!r} is {space}, which has no numbers; leave it out")
    if isinstance(space, spaces.Box):
        dtype = space.dtype if space.dtype in STORED_DTYPES else np.dtype(np.float32)
        # Bounds of the box's own dtype avoid Gymnasium's warning about precision.
        return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), space.shape, dtype)
    if isinstance(space, spaces.Discrete):
        return _indices((int(space.n),), space, key)
    if isinstance(space, spaces.MultiDiscrete):
        return _indices(space.nvec.ravel().tolist(), space, key)
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.float32)
    raise UnsupportedSpace(
        f"observation {key!r} is a {type(space).__name__} space; supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these (gymnasium.wrappers.FilterObservation removes a key)"
    )


def _conversion(space: spaces.Space[Any], key: str, is_batch: bool) -> Callable[[Any], np.ndarray]:
    """Returns a function that converts a value of a supported space (with is_batch, a batch of values) to an
    array as it is stored. `key` names the observation in error messages."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray
    if isinstance(space, spaces.Discrete) and not is_batch:
        return _discrete_conversion(space, key)
    to_indices = batch_to_indices(space, key)
    return to_indices if is_batch else lambda value: to_indices(value)[0]


def _indices(sizes: Sequence[int], space: spaces.Space[Any], key: str) -> Indices:
    if max(sizes) > MAX_CHOICES:
        raise UnsupportedSpace(f"observation {key!r} is {space}; at most {MAX_CHOICES} choices are supported")
    return Indices(sizes)


def _discrete_conversion(space: spaces.Discrete, key: str) -> Callable[[Any], np.ndarray]:
    n = int(space.n)
    start = int(space.start)

    def to_indices(value: Any) -> np.ndarray:
        index = int(value) - start
        if not 0 <= index < n:
            raise ValueError(f"observation {key!r} is {value}, which is not in its space {space}")
        return np.array((index,), np.int32)

    return to_indices


def batch_to_indices(space: spaces.Discrete | spaces.MultiDiscrete, key: str) -> Callable[[Any], np.ndarray]:
    """Returns a function that converts a batch of values of the space, [B, *shape], or a single value (B = 1)
    to indices, [B, K] int32. The function raises ValueError for a value that is not in the space, with a
    message that names the observation `key`."""
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    starts = np.ravel(space.start)

    def to_indices(values: Any) -> np.ndarray:
        indices = np.asarray(values).reshape(-1, len(sizes)) - starts
        is_outside = (indices < 0) | (indices >= sizes)
        if is_outside.any():
            (first, *_) = indices[is_outside.any(axis=1)] + starts
            raise ValueError(f"observation {key!r} is {first}, which is not in its space {space}")
        return indices.astype(np.int32)  # as stored, so that no other check of the range follows

    return to_indices


class ImageShape(NamedTuple):
    """Size of one image, without the batch."""

    channels: int
    height: int
    width: int


class ImageLayout(NamedTuple):
    """Describes the axes of an observation that is an image or a stack of images.

    size: size of the image, with the channels of a whole stack.
    is_stack: the first axis counts images; their channels are concatenated.
    is_hwc: the last axis counts channels.
    is_plane: there is no axis of channels.
    """

    size: ImageShape
    is_stack: bool
    is_hwc: bool
    is_plane: bool


def image_layout(shape: tuple[int, ...]) -> ImageLayout:
    """Interprets a shape of 2 to 4 dimensions as an image or a stack of images.

    Two dimensions are (height, width). Three are (height, width, channels) if only the last number is a usual
    number of channels, or if the first two are equal and the last differs; otherwise (channels, height,
    width). With four dimensions, the first counts images.
    """
    if len(shape) == 2:
        return ImageLayout(ImageShape(1, *shape), is_stack=False, is_hwc=False, is_plane=True)
    *stack, first, second, last = shape
    is_hwc = (last in CHANNELS and first not in CHANNELS) or first == second != last
    size = ImageShape(last, first, second) if is_hwc else ImageShape(first, second, last)
    if stack:
        size = size._replace(channels=stack[0] * size.channels)
    return ImageLayout(size, bool(stack), is_hwc, is_plane=False)


def is_image(space: spaces.Box) -> bool:
    """Returns whether an observation is an image or a stack of images, rather than a table of numbers.

    Observations of bytes are images if they have 2 to 4 dimensions, those of floats if they have 3 or 4.
    """
    least = 3 if space.dtype == np.float32 else 2
    return not isinstance(space, Indices) and least <= len(space.shape) <= 4
