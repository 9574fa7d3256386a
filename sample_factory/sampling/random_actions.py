"""Random actions that the env allows."""

from typing import Any, Iterator

import gymnasium as gym
import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.spaces import action_encoder
from sample_factory.models.action_layout import ACTION_MASK


class RandomActions:
    """Draws for all agents of an env; what an observation `action_mask` forbids is never drawn."""

    def __init__(self, action_space: gym.Space, num_agents: int, seed: int | None):
        self._space, self._num_agents = action_space, num_agents
        self._space.seed(seed)
        self._encode = action_encoder(action_space)

    def __call__(self, rows: ObservationRows) -> np.ndarray:
        """[num_agents, num_action_values] float32. rows: the agents' observations."""
        return np.stack([self._draw(rows, agent) for agent in range(self._num_agents)])

    def _draw(self, rows: ObservationRows, agent: int) -> np.ndarray:
        mask = None
        if ACTION_MASK in rows.arrays:
            mask = _shape_mask(self._space, iter(rows.view(agent)[ACTION_MASK].ravel() != 0))
        return self._encode(self._space.sample(mask))


def _shape_mask(space: gym.Space, allowed: Iterator[bool]) -> Any:
    """As `space.sample` wants it; allowed: an iterator over bools, one for each discrete logit in order."""
    if isinstance(space, gym.spaces.Discrete):
        return np.fromiter((next(allowed) for _ in range(space.n)), np.int8)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _nested(space.nvec, allowed)
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_shape_mask(part, allowed) for part in space.spaces)
    return None


def _nested(sizes: np.ndarray, allowed: Iterator[bool]) -> tuple:
    """MultiDiscrete's mask: tuples that are nested as its sizes are."""
    if sizes.ndim > 1:
        return tuple(_nested(row, allowed) for row in sizes)
    return tuple(np.fromiter((next(allowed) for _ in range(size)), np.int8) for size in sizes)
