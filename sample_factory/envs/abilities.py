"""Abilities beyond the Gymnasium API. An env says that it has one by inheriting; nobody probes attributes."""

from collections.abc import Mapping
from typing import Any

import numpy as np


class WritesObservations:
    """A single-agent Gymnasium env that writes its observation into given arrays, which saves a copy.

    Every wrapper around it that changes observations must pass `into` on. `into` maps each observation key to
    a writable view with the shape and dtype of the space; the observation in the returned tuple is ignored by
    the framework when `into` was given, and may be None.
    """

    def reset_into(self, into: Mapping[str, np.ndarray], *, seed: int | None = None) -> dict[str, Any]:
        """Starts an episode, writes its first observation, returns info."""
        raise NotImplementedError

    def step_into(
        self, action: Any, into: Mapping[str, np.ndarray]
    ) -> tuple[float, bool, bool, Mapping[str, Any]]:
        """Returns reward, terminated, truncated, info. At an episode's end nothing need be written."""
        raise NotImplementedError


class RewardShaping:
    """An env whose reward is shaped by numbers that population-based training may change.

    This class itself stands for an env without any.
    """

    def get_default_reward_shaping(self) -> dict[str, Any]:
        """The shaping at the start, a (nested) dict of floats."""
        return {}

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        """Takes effect at the agent's next episode, or in the present one if that has had no step yet."""


class OwnsProcess:
    """An env with a simulator process of its own.

    This class itself stands for an env without one.
    """

    def process_is_gone(self) -> bool:
        """Whether it has died although the env still wants it. Another thread may ask at any time."""
        return False
