"""Actions and logits as rows of numbers: their layout, and conversion from and to Gymnasium spaces. No torch.

An action is stored as one row of float32: one value per choice (an index from 0, whatever the space's
`start`) and one per element of a Box, in the order of the space. MultiBinary is one choice of two per
element; a Dict is its parts, in the order of its keys. Logits follow the same order: n per choice of n;
means, then logarithms of standard deviations, per Box.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from sample_factory.spaces.observations import UnsupportedSpace

# Key of the observation that has one number per discrete logit; 0 forbids the choice. Only the action
# distribution uses it: it is neither normalised nor encoded.
ACTION_MASK = "action_mask"
# Half the distance of bounds that stand for none, such as the largest numbers of a dtype, is at least this.
WIDEST_RANGE = 1e18

Leaf: TypeAlias = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box


class Discretized(spaces.Discrete):
    """Discretises a continuous action: a choice among n equally spaced numbers from min_action to max_action,
    both included.

    An action is an index, as in any Discrete space; the env converts it with `to_continuous`.
    """

    def __init__(self, n: int, min_action: float, max_action: float):
        super().__init__(n)
        self.min_action, self.max_action = min_action, max_action
        self.values = np.linspace(min_action, max_action, n)

    def to_continuous(self, action: Any) -> Any:
        """Returns the number for an index, or the array of numbers for an array of indices."""
        return self.values[action]

    def __repr__(self) -> str:
        return f"Discretized({self.n}, {self.values[0]:g}, {self.values[-1]:g})"


@dataclass(frozen=True)
class ActionLayout:
    """Says which columns of a row of logits or stored actions belong to which part of an action.

    discrete_sizes: number of choices of each discrete component.
    discrete_logits: columns of the logits of all discrete components, [sum(discrete_sizes)].
    means, log_stds: columns of the logits that parametrise Gaussians, one for each element of a Box.
    discrete_actions, box_actions: columns of the actions of discrete components, and of elements of a Box.
    centers, half_ranges: scale of each element of a Box: the output x of a built-in network means the action
        center + half_range * x. They are 0 and 1 without --scale_actions, and where a bound is missing.
    """

    discrete_sizes: tuple[int, ...]
    discrete_logits: tuple[int, ...]
    means: tuple[int, ...]
    log_stds: tuple[int, ...]
    discrete_actions: tuple[int, ...]
    box_actions: tuple[int, ...]
    centers: tuple[float, ...]
    half_ranges: tuple[float, ...]

    @property
    def num_logits(self) -> int:
        return len(self.discrete_logits) + len(self.means) + len(self.log_stds)

    @property
    def num_action_values(self) -> int:
        """Number of floats in the stored row of one action."""
        return len(self.discrete_actions) + len(self.box_actions)

    @property
    def is_scaled(self) -> bool:
        """Whether any element of a Box is scaled."""
        return any(self.centers) or any(half_range != 1 for half_range in self.half_ranges)


def action_layout(space: spaces.Space[Any], scales: bool = False) -> ActionLayout:
    """Returns the layout of actions and logits for a Discrete, MultiDiscrete, MultiBinary or Box space, or a
    (nested) Tuple or Dict of these.

    scales: value of --scale_actions. Raises UnsupportedSpace for any other space.
    """
    sizes: list[int] = []
    discrete_logits: list[int] = []
    means: list[int] = []
    log_stds: list[int] = []
    discrete_actions: list[int] = []
    box_actions: list[int] = []
    centers: list[float] = []
    half_ranges: list[float] = []
    logits = itertools.count()
    actions = itertools.count()
    for _, leaf in action_leaves(space):
        if isinstance(leaf, spaces.Box):
            size = math.prod(leaf.shape)
            means += itertools.islice(logits, size)
            log_stds += itertools.islice(logits, size)
            box_actions += itertools.islice(actions, size)
            center, half_range = _scale(leaf) if scales else (np.zeros(size), np.ones(size))
            centers += center.tolist()
            half_ranges += half_range.tolist()
            continue
        for n in choices(leaf)[0].ravel().tolist():
            sizes.append(n)
            discrete_logits += itertools.islice(logits, n)
            discrete_actions.append(next(actions))
    return ActionLayout(
        tuple(sizes),
        tuple(discrete_logits),
        tuple(means),
        tuple(log_stds),
        tuple(discrete_actions),
        tuple(box_actions),
        tuple(centers),
        tuple(half_ranges),
    )


def _scale(box: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Returns the centre and the half range of each element's bounds, both [elements] float64; 0 and 1 where
    a bound is missing or both bounds are equal."""
    bounds = np.stack([box.low.ravel(), box.high.ravel()]).astype(np.float64)
    half_range = bounds[1] / 2 - bounds[0] / 2
    is_bounded = box.bounded_below.ravel() & box.bounded_above.ravel()  # integers have limits of their type
    is_scaled = is_bounded & (half_range > 0) & (half_range < WIDEST_RANGE)
    low, high = np.where(is_scaled, bounds, [[-1], [1]])
    return low / 2 + high / 2, high / 2 - low / 2


def inner_spaces(space: spaces.Space[Any]) -> Mapping[Any, spaces.Space[Any]] | None:
    """Returns the parts of a Dict by key, or of a Tuple by index; None for any other space."""
    if isinstance(space, spaces.Tuple):
        return dict(enumerate(space.spaces))
    return space.spaces if isinstance(space, spaces.Dict) else None


def action_leaves(space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Leaf]]:
    """Yields (path, space) for each leaf of a nested action space, in order. A path has the indices and keys
    that lead from an action to the value of the leaf.

    path: path of `space` itself. Raises UnsupportedSpace for a leaf other than Discrete, MultiDiscrete,
    MultiBinary and Box.
    """
    inner = inner_spaces(space)
    if inner is not None:
        for key, part in inner.items():
            yield from action_leaves(part, (*path, key))
    elif isinstance(space, Leaf):
        yield path, space
    else:
        raise UnsupportedSpace(
            f"action space {space} is not supported; use Discrete, MultiDiscrete or MultiBinary, Box, or a "
            "Tuple or Dict of these"
        )


def choices(space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (number of choices, first choice) of each component of a Discrete, MultiDiscrete or MultiBinary
    space, both int64 arrays with the shape of an action."""
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2, np.int64), np.zeros(space.shape, np.int64)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete), f"{space} has no choices"
    sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return np.asarray(sizes, np.int64), np.asarray(space.start, np.int64)


def clipping_bounds(box: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds (low, high) to which stored float32 actions are clipped, each of the Box's shape.

    A Box of floats keeps its bounds. A Box of integers gets the nearest float32 numbers within the Box, since
    its bounds may not be float32 numbers.
    """
    if box.dtype.kind == "f":
        return box.low, box.high
    low, high = (np.asarray(bound.astype(np.float32)) for bound in (box.low, box.high))
    # Python's integers are exact; NumPy would compare the rounded bounds.
    is_below = [int(rounded) < int(own) for rounded, own in zip(low.flat, box.low.flat)]
    is_above = [int(rounded) > int(own) for rounded, own in zip(high.flat, box.high.flat)]
    low = np.where(np.reshape(is_below, low.shape), np.nextafter(low, np.float32(np.inf)), low)
    return low, np.where(np.reshape(is_above, high.shape), np.nextafter(high, np.float32(-np.inf)), high)


def action_decoder(space: spaces.Space[Any]) -> Callable[[np.ndarray], Any]:
    """Returns a function that converts a stored row, [num_action_values] float32, to an action of the space.

    Box actions are clipped to the bounds, since a Gaussian policy has no bounds; those of an integer Box are
    rounded to the nearest integer, halves to the even one. Raises UnsupportedSpace if the space or a part of
    it is not supported by `action_layout`.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda row: int(row[0]) + start
    if inner_spaces(space) is not None:
        return _decoder_of_parts(space, action_decoder)
    decode_batch = batch_action_decoder(space)
    return lambda row: decode_batch(row[None])[0]


def batch_action_decoder(space: spaces.Space[Any]) -> Callable[[np.ndarray], Any]:
    """Returns a function that converts stored rows, [B, num_action_values] float32, to a batch of actions as
    Gymnasium's vector envs accept it: an array [B, ...], or a Tuple or Dict of such arrays.

    Box actions are clipped and rounded as by `action_decoder`. Raises UnsupportedSpace for a space that
    `action_layout` does not support.
    """
    if inner_spaces(space) is not None:
        return _decoder_of_parts(space, batch_action_decoder)
    ((_, leaf),) = action_leaves(space)
    if isinstance(leaf, spaces.Box):
        return _box_decoder(leaf)
    sizes, starts = choices(leaf)
    return lambda rows: (rows.astype(np.int64).reshape(-1, *sizes.shape) + starts).astype(leaf.dtype)


def _box_decoder(box: spaces.Box) -> Callable[[np.ndarray], np.ndarray]:
    dtype = box.dtype
    low, high = clipping_bounds(box)
    if dtype.kind == "f":
        return lambda rows: np.clip(rows.reshape(-1, *box.shape), low, high).astype(dtype, copy=False)
    return lambda rows: np.clip(np.rint(rows.reshape(-1, *box.shape)), low, high).astype(dtype)


def _decoder_of_parts(
    space: spaces.Space[Any], decoder: Callable[[spaces.Space[Any]], Callable[[np.ndarray], Any]]
) -> Callable[[np.ndarray], Any]:
    """Returns a function that converts stored rows to actions of a Tuple or Dict, part by part. decoder:
    makes the function for one part, e.g. `action_decoder`."""
    inner = inner_spaces(space) or {}
    ends = itertools.accumulate(action_layout(part).num_action_values for part in inner.values())
    columns = [slice(*pair) for pair in itertools.pairwise((0, *ends))]
    parts = [(key, own, decoder(part)) for own, (key, part) in zip(columns, inner.items())]
    if isinstance(space, spaces.Dict):
        return lambda rows: {key: decode(rows[..., own]) for key, own, decode in parts}
    return lambda rows: tuple(decode(rows[..., own]) for _, own, decode in parts)


def action_encoder(space: spaces.Space[Any], is_batch: bool = False) -> Callable[[Any], np.ndarray]:
    """Returns a function that converts an action of the space to a row, [num_action_values] float32, the
    inverse of `action_decoder`. is_batch: whether to return the inverse of `batch_action_decoder` instead.
    Raises UnsupportedSpace for a space that `action_layout` does not support."""
    inner = inner_spaces(space)
    if inner is not None:
        encoders = [(key, action_encoder(part, is_batch)) for key, part in inner.items()]
        return lambda action: np.concatenate([encode(action[key]) for key, encode in encoders], axis=-1)
    ((_, leaf),) = action_leaves(space)
    starts = np.zeros(1) if isinstance(leaf, spaces.Box) else choices(leaf)[1].ravel()
    if is_batch:
        return lambda actions: (np.asarray(actions).reshape(len(actions), -1) - starts).astype(np.float32)
    return lambda action: (np.asarray(action).ravel() - starts).astype(np.float32)
