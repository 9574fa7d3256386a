"""Observations of any supported Gymnasium space as a flat dict of arrays, the form that is stored."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

STORED_DTYPES = (np.uint8, np.int8, np.float32)  # every other dtype is stored as float32


class ObservationLayout(NamedTuple):
    """A user's observation space as a flat Dict of Box spaces, and the conversion of one observation."""

    space: spaces.Dict
    flatten: Callable[[Any], Mapping[str, np.ndarray]]


class _Leaf(NamedTuple):
    """One entry of the flat dict.

    path: keys and indices that lead to its value in the user's observation.
    convert: turns the value into an array of `box`.
    """

    key: str
    path: tuple[Any, ...]
    box: spaces.Box
    convert: Callable[[Any], np.ndarray]


def observation_layout(space: spaces.Space[Any]) -> ObservationLayout:
    """Returns the layout of an observation space.

    Dict spaces keep their keys (nested ones joined by '/'), Tuple entries become obs_0, obs_1, ..., anything
    else is the single key 'obs'.

    Box stays (float64 and wide integers become float32), Discrete and MultiDiscrete become one-hot float32,
    MultiBinary float32. Raises ValueError for other spaces.
    """
    leaves = list(_leaves(space, "", ()))

    def flatten(observation: Any) -> dict[str, np.ndarray]:
        flat = {}
        for key, path, _, convert in leaves:
            value = observation
            for part in path:
                value = value[part]
            flat[key] = convert(value)
        return flat

    return ObservationLayout(spaces.Dict({leaf.key: leaf.box for leaf in leaves}), flatten)


def _leaves(space: spaces.Space[Any], prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _leaves(child, f"{prefix}/{key}" if prefix else key, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, child in enumerate(space.spaces):
            yield from _leaves(child, f"{prefix or 'obs'}_{i}", (*path, i))
    else:
        key = prefix or "obs"
        yield _Leaf(key, path, *_box_and_conversion(space, key))


def _box_and_conversion(space: spaces.Space[Any], key: str) -> tuple[spaces.Box, Callable[[Any], np.ndarray]]:
    if isinstance(space, spaces.Box):
        return _stored_box(space), np.asarray
    if isinstance(space, spaces.Discrete):
        eye = np.eye(int(space.n), dtype=np.float32)
        start = space.start
        return spaces.Box(0, 1, (int(space.n),), np.float32), lambda value: eye[int(value) - start]
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0, 1, (int(space.nvec.sum()),), np.float32), _one_hot(space)
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.float32), np.asarray
    raise ValueError(
        f"observation {key!r} is a {type(space).__name__} space; supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these"
    )


def _stored_box(space: spaces.Box) -> spaces.Box:
    dtype = space.dtype if space.dtype in STORED_DTYPES else np.dtype(np.float32)
    # Bounds of the box's own dtype avoid Gymnasium's warning about precision.
    return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), space.shape, dtype)


def _one_hot(space: spaces.MultiDiscrete) -> Callable[[Any], np.ndarray]:
    """Returns a function from a MultiDiscrete value to its concatenated one-hot vectors, float32."""
    eyes = [np.eye(int(n), dtype=np.float32) for n in space.nvec.ravel()]
    starts = np.asarray(space.start).ravel()

    def one_hot(value: Any) -> np.ndarray:
        indices = np.asarray(value).ravel() - starts
        return np.concatenate([eye[index] for eye, index in zip(eyes, indices)])

    return one_hot
