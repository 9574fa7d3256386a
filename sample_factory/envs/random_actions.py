"""Random actions, for the first steps of envs and for sampling without a network."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.spaces.actions import ACTION_MASK, action_encoder, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds


class RandomActions:
    """Draws an action for each agent of an env; never one that its observation `action_mask` forbids."""

    def __init__(self, kinds: AgentKinds, seed: int | None):
        self._kind_of_agent = kinds.of_agent
        self._spaces = [spaces.action for spaces in kinds.spaces]
        self._encoders = [action_encoder(space) for space in self._spaces]
        self._row_size = max(action_layout(space).num_action_values for space in self._spaces)
        self.has_masks = any(ACTION_MASK in spaces.observation.spaces for spaces in kinds.spaces)
        for space in self._spaces:
            space.seed(seed)

    def __call__(self, rows: ObservationRows) -> np.ndarray:
        """Returns [num_agents, K] float32. rows: the agents' observations; read only for action masks."""
        actions = np.zeros((len(self._kind_of_agent), self._row_size), np.float32)
        for agent, kind in enumerate(self._kind_of_agent):
            mask = rows.arrays_of(agent).get(ACTION_MASK)
            if mask is not None:
                allowed = iter(mask[rows.buffers[agent], rows.step].ravel() != 0)
                mask = _shape_mask(self._spaces[kind], allowed)
            row = self._encoders[kind](self._spaces[kind].sample(mask))
            actions[agent, : len(row)] = row
        return actions


def _shape_mask(space: gym.Space[Any], allowed: Iterator[bool]) -> Any:
    """Returns a mask for `space.sample`. allowed: yields one bool for each discrete logit in order."""
    if isinstance(space, gym.spaces.Discrete):
        return np.fromiter((next(allowed) for _ in range(space.n)), np.int8)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _nested(space.nvec, allowed)
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_shape_mask(part, allowed) for part in space.spaces)
    return None


def _nested(sizes: np.ndarray, allowed: Iterator[bool]) -> tuple[Any, ...]:
    """Returns the mask of a MultiDiscrete: tuples, nested like its sizes."""
    if sizes.ndim > 1:
        return tuple(_nested(row, allowed) for row in sizes)
    return tuple(np.fromiter((next(allowed) for _ in range(size)), np.int8) for size in sizes)
