"""Actions and logits as rows of numbers: their layout, and conversion from and to Gymnasium spaces. No torch.

An action is stored as one row of float32: one value per Discrete component (an index from 0, whatever the
space's `start`) and one per element of a Box, in the order of the space. Logits follow the same order: n per
Discrete component of n choices; means, then logarithms of standard deviations, per Box.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.spaces.observations import UnsupportedSpace

# Key of the observation that has one number per discrete logit; 0 forbids the choice. Only the action
# distribution uses it: it is neither normalised nor encoded.
ACTION_MASK = "action_mask"


class Discretized(spaces.Discrete):
    """A choice among n equally spaced numbers from low to high, both included, for a continuous control.

    An action is an index, as in any Discrete space; the env converts it with `to_continuous`.
    """

    def __init__(self, n: int, low: float, high: float):
        super().__init__(n)
        self.values = np.linspace(low, high, n)

    def to_continuous(self, action: int) -> float:
        """Returns the number at this index."""
        return float(self.values[action])

    def __repr__(self) -> str:
        return f"Discretized({self.n}, {self.values[0]:g}, {self.values[-1]:g})"


@dataclass(frozen=True)
class ActionLayout:
    """Column indices in a row of logits and in a row of actions.

    discrete_sizes: number of choices of each discrete component.
    discrete_logits: columns of all their logits, [sum(discrete_sizes)].
    means, log_stds: columns of the Gaussians' logits, one each per element of a Box.
    discrete_actions, box_actions: columns of the actions.
    """

    discrete_sizes: tuple[int, ...]
    discrete_logits: tuple[int, ...]
    means: tuple[int, ...]
    log_stds: tuple[int, ...]
    discrete_actions: tuple[int, ...]
    box_actions: tuple[int, ...]

    @property
    def num_logits(self) -> int:
        return len(self.discrete_logits) + len(self.means) + len(self.log_stds)

    @property
    def num_action_values(self) -> int:
        """Number of floats in the stored row of one action."""
        return len(self.discrete_actions) + len(self.box_actions)


def action_layout(space: spaces.Space[Any]) -> ActionLayout:
    """Returns the layout of a Discrete, MultiDiscrete, Box, or (nested) Tuple of those.

    Raises UnsupportedSpace for any other space.
    """
    sizes: list[int] = []
    discrete_logits: list[int] = []
    means: list[int] = []
    log_stds: list[int] = []
    discrete_actions: list[int] = []
    box_actions: list[int] = []
    logits = itertools.count()
    actions = itertools.count()
    for part in _leaves(space):
        if isinstance(part, spaces.Box):
            size = math.prod(part.shape)
            means += itertools.islice(logits, size)
            log_stds += itertools.islice(logits, size)
            box_actions += itertools.islice(actions, size)
            continue
        for n in np.ravel(part.n if isinstance(part, spaces.Discrete) else part.nvec).tolist():
            sizes.append(n)
            discrete_logits += itertools.islice(logits, n)
            discrete_actions.append(next(actions))
    columns = (sizes, discrete_logits, means, log_stds, discrete_actions, box_actions)
    return ActionLayout(*map(tuple, columns))


def _leaves(space: spaces.Space[Any]) -> list[spaces.Discrete | spaces.MultiDiscrete | spaces.Box]:
    """Returns the parts of the space in order, without Tuples. Raises UnsupportedSpace."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.Box):
        return [space]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaves(part)]
    raise _unsupported(space)


def _unsupported(space: spaces.Space[Any]) -> UnsupportedSpace:
    return UnsupportedSpace(
        f"action space {space} is not supported; use Discrete, MultiDiscrete (also for MultiBinary), Box, or "
        "a Tuple of these (also for Dict)"
    )


def action_decoder(space: spaces.Space[Any]) -> Callable[[np.ndarray], Any]:
    """Returns a function from one stored row, [num_action_values] float32, to an action of the space.

    Box actions are clipped to the bounds: a Gaussian policy has none. Raises UnsupportedSpace.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda row: int(row[0]) + start
    if not isinstance(space, spaces.Tuple):
        decode_batch = batch_action_decoder(space)
        return lambda row: decode_batch(row[None])[0]
    parts = list(zip(_columns(space), map(action_decoder, space.spaces)))
    return lambda row: tuple(decode(row[columns]) for columns, decode in parts)


def _columns(space: "spaces.Tuple[Any]") -> list[slice]:
    """Returns the columns of each part of a Tuple in a row of actions."""
    sizes = [action_layout(part).num_action_values for part in space.spaces]
    return [slice(end - size, end) for size, end in zip(sizes, itertools.accumulate(sizes))]


def batch_action_decoder(space: spaces.Space[Any]) -> Callable[[np.ndarray], Any]:
    """Returns a function from rows, [B, num_action_values] float32, to a batch of actions of the space, as
    Gymnasium's vector envs accept it: an array [B, ...]; for a Tuple, a tuple of such arrays.

    Box actions are clipped to the bounds. Raises UnsupportedSpace.
    """
    if isinstance(space, spaces.Discrete):
        start = space.start
        return lambda rows: rows[:, 0].astype(np.int64) + start
    if isinstance(space, spaces.MultiDiscrete):
        starts = space.start
        shape = space.nvec.shape
        dtype = space.dtype
        return lambda rows: rows.astype(dtype).reshape(-1, *shape) + starts
    if isinstance(space, spaces.Box):
        low = space.low
        high = space.high
        return lambda rows: np.clip(rows.reshape(-1, *low.shape), low, high).astype(low.dtype)
    if not isinstance(space, spaces.Tuple):
        raise _unsupported(space)
    parts = list(zip(_columns(space), map(batch_action_decoder, space.spaces)))
    return lambda rows: tuple(decode(rows[:, columns]) for columns, decode in parts)


def action_encoder(space: spaces.Space[Any]) -> Callable[[Any], np.ndarray]:
    """Returns the inverse of `action_decoder`: from an action of the space to its row, float32.

    Raises UnsupportedSpace.
    """
    if isinstance(space, spaces.Tuple):
        encoders = [action_encoder(part) for part in space.spaces]
        return lambda action: np.concatenate([encode(part) for encode, part in zip(encoders, action)])
    if isinstance(space, spaces.Box):
        return lambda action: np.asarray(action, np.float32).ravel()
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = np.ravel(space.start)
        return lambda action: (np.asarray(action).ravel() - start).astype(np.float32)
    raise _unsupported(space)
