"""Between Gymnasium spaces and the rows of numbers that the framework stores."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces


class Discretized(spaces.Discrete):
    """A choice among n equally spaced numbers from low to high, both included, for a continuous control.

    An action is an index, as of any Discrete space; the env turns it into the number by `to_continuous`.
    """

    def __init__(self, n: int, low: float, high: float):
        super().__init__(n)
        self.values = np.linspace(low, high, n)

    def to_continuous(self, action: int) -> float:
        """The number that the index stands for."""
        return float(self.values[action])

    def __repr__(self) -> str:
        return f"Discretized({self.n}, {self.values[0]:g}, {self.values[-1]:g})"


class ObservationLayout(NamedTuple):
    """A user's observation space as a flat Dict of Box spaces, and how to convert an observation."""

    space: spaces.Dict
    flatten: Callable[[Any], Mapping[str, np.ndarray]]


def observation_layout(space: spaces.Space) -> ObservationLayout:
    """Dict spaces keep their keys (nested ones joined by '/'), Tuple entries become obs_0, obs_1, ...,
    anything else is the single key 'obs'.

    Box stays (float64 and wide integers become float32), Discrete and MultiDiscrete become one-hot float32,
    MultiBinary float32. Raises ValueError for other spaces.
    """
    leaves: dict[str, tuple[spaces.Box, Callable[[Any], np.ndarray]]] = {}
    paths: dict[str, tuple] = {}
    _collect(space, "", (), leaves, paths)
    converted = spaces.Dict({key: box for key, (box, _) in leaves.items()})
    plan = [(key, paths[key], convert) for key, (_, convert) in leaves.items()]

    def flatten(observation: Any) -> dict[str, np.ndarray]:
        flat = {}
        for key, path, convert in plan:
            value = observation
            for part in path:
                value = value[part]
            flat[key] = convert(value)
        return flat

    return ObservationLayout(converted, flatten)


def _collect(space: spaces.Space, prefix: str, path: tuple, leaves: dict, paths: dict) -> None:
    if isinstance(space, spaces.Dict):
        children = [(f"{prefix}/{key}" if prefix else key, key, child) for key, child in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        children = [(f"{prefix or 'obs'}_{i}", i, child) for i, child in enumerate(space.spaces)]
    else:
        key = prefix or "obs"
        leaves[key], paths[key] = _leaf(space, key), path
        return
    for name, part, child in children:
        _collect(child, name, (*path, part), leaves, paths)


def _leaf(space: spaces.Space, key: str) -> tuple[spaces.Box, Callable[[Any], np.ndarray]]:
    if isinstance(space, spaces.Box):
        dtype = space.dtype if space.dtype in (np.uint8, np.int8, np.float32) else np.dtype(np.float32)
        low, high = space.low.astype(dtype), space.high.astype(dtype)
        # A custom make of the bounds' dtype avoids Gymnasium's precision warning.
        return spaces.Box(low, high, space.shape, dtype), np.asarray
    if isinstance(space, spaces.Discrete):
        eye, start = np.eye(space.n, dtype=np.float32), space.start
        return spaces.Box(0, 1, (int(space.n),), np.float32), lambda value: eye[int(value) - start]
    if isinstance(space, spaces.MultiDiscrete):
        eyes = [np.eye(n, dtype=np.float32) for n in space.nvec.ravel()]
        starts = np.asarray(space.start).ravel()
        size = int(space.nvec.sum())

        def one_hot(value: Any) -> np.ndarray:
            indices = np.asarray(value).ravel() - starts
            return np.concatenate([eye[index] for eye, index in zip(eyes, indices)])

        return spaces.Box(0, 1, (size,), np.float32), one_hot
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.float32), np.asarray
    raise ValueError(
        f"observation {key!r} is a {type(space).__name__} space; supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these"
    )


def num_action_values(space: spaces.Space) -> int:
    """Floats in the stored row of one action: 1 for each discrete choice, d for a Box of d numbers."""
    if isinstance(space, spaces.Discrete):
        return 1
    if isinstance(space, (spaces.MultiDiscrete, spaces.Box)):
        return int(np.prod(space.shape))
    if isinstance(space, spaces.Tuple):
        return sum(num_action_values(part) for part in space.spaces)
    raise ValueError(
        f"action space {type(space).__name__} is not supported; supported are Discrete, MultiDiscrete, "
        "Box, and Tuple of these"
    )


def action_decoder(space: spaces.Space) -> Callable[[np.ndarray], Any]:
    """A function from one stored row, [num_action_values] float32, to an action of the space.

    Box actions are clipped to the bounds: a Gaussian policy has none.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda row: int(row[0]) + start
    if isinstance(space, spaces.MultiDiscrete):
        offset, shape, dtype = np.asarray(space.start).ravel(), space.shape, space.dtype
        return lambda row: (row.astype(dtype) + offset).reshape(shape)
    if isinstance(space, spaces.Box):
        low, high, shape, dtype = space.low, space.high, space.shape, space.dtype
        return lambda row: np.clip(row.reshape(shape), low, high).astype(dtype)
    if isinstance(space, spaces.Tuple):
        if all(isinstance(part, spaces.Discrete) for part in space.spaces):
            starts = [int(part.start) for part in space.spaces]
            return lambda row: tuple([int(value) + start for value, start in zip(row.tolist(), starts)])
        parts, begin = [], 0
        for part in space.spaces:
            size = num_action_values(part)
            parts.append((slice(begin, begin + size), action_decoder(part)))
            begin += size
        return lambda row: tuple(decode(row[where]) for where, decode in parts)
    raise ValueError(f"action space {type(space).__name__} is not supported")


def action_encoder(space: spaces.Space) -> Callable[[Any], np.ndarray]:
    """The inverse of `action_decoder`: from an action of the space to its row, float32."""
    if isinstance(space, spaces.Tuple):
        encoders = [action_encoder(part) for part in space.spaces]
        return lambda action: np.concatenate([encode(part) for encode, part in zip(encoders, action)])
    if isinstance(space, spaces.Box):
        return lambda action: np.asarray(action, np.float32).ravel()
    start = np.asarray(space.start).ravel()
    return lambda action: (np.asarray(action).ravel() - start).astype(np.float32)
