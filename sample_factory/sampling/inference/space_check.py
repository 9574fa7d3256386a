"""Finds observations that are outside of their space."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

CHECK_EVERY = 100  # batches
TOLERANCE = 1e-3  # relative to a bound above 1: rounding is no mistake


class Outside(NamedTuple):
    """Which observations of a batch are outside of their space.

    rows: [B] bool, True for those. example: a text about one of them, for the log.
    """

    rows: np.ndarray
    example: str


class SpaceCheck:
    """Compares the observations of one batch in CHECK_EVERY, the first one included, with their space.

    To check all of them would take as long as to copy them, and a mistake in an env seldom occurs only once.
    """

    def __init__(self, space: gym.spaces.Dict):
        """space: a Dict of Box."""
        boxes = {key: box for key, box in space.spaces.items() if isinstance(box, gym.spaces.Box)}
        self._bounds = {key: _bounds(box) for key, box in boxes.items() if not _allows_all(box)}
        self._num_batches = 0

    def outside(self, obs: Mapping[str, np.ndarray]) -> Outside | None:
        """Returns the observations outside of their space; None if there are none, or if the batch is not
        checked.

        obs: [B, *shape] by key.
        """
        is_due = self._num_batches % CHECK_EVERY == 0
        self._num_batches += 1
        if is_due:
            for key, (low, high) in self._bounds.items():
                wrong = (obs[key] < low) | (obs[key] > high)
                if wrong.any():
                    value = obs[key][wrong][0]
                    example = f"its observation {key!r} has the value {value}, outside of its space"
                    return Outside(np.any(wrong.reshape(len(wrong), -1), axis=1), example)
        return None


def _allows_all(box: gym.spaces.Box) -> bool:
    """Returns whether the bounds exclude no number of the dtype."""
    dtype: np.dtype[Any] = box.dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return bool((box.low <= limits.min).all() and (box.high >= limits.max).all())


def _bounds(box: gym.spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Returns (low, high) with a tolerance, each [*shape] float64."""
    low, high = box.low.astype(float), box.high.astype(float)
    return low - TOLERANCE * np.maximum(1.0, np.abs(low)), high + TOLERANCE * np.maximum(1.0, np.abs(high))
