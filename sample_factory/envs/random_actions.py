"""Random actions, for the first steps of envs and for sampling without a network."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds


class RandomActions:
    """Draws an action for each agent of an env; never one that its observation `action_mask` forbids."""

    def __init__(self, kinds: AgentKinds, seed: int | None):
        self._kinds = [_KindActions(spaces.action) for spaces in kinds.spaces]
        of_agent = np.array(kinds.of_agent)
        self._agents = [np.flatnonzero(of_agent == kind) for kind in range(len(self._kinds))]  # of each kind
        self._shape = len(of_agent), max(kind.num_values for kind in self._kinds)
        self.has_masks = any(ACTION_MASK in spaces.observation.spaces for spaces in kinds.spaces)
        self._rng = np.random.default_rng(seed)

    def __call__(self, rows: ObservationRows) -> np.ndarray:
        """Returns [num_agents, K] float32. rows: the agents' observations; read only for action masks."""
        actions = np.zeros(self._shape, np.float32)
        for kind, agents in zip(self._kinds, self._agents):
            mask = rows.arrays_of(agents[0]).get(ACTION_MASK)
            if mask is not None:
                mask = mask[rows.buffers[agents], rows.step].reshape(len(agents), -1) != 0
            actions[agents, : kind.num_values] = kind.draw(self._rng, len(agents), mask)
        return actions


class _KindActions:
    """Draws actions of one space for many agents at once."""

    def __init__(self, space: gym.Space[Any]):
        layout = action_layout(space)
        self.num_values = layout.num_action_values
        self._sizes = layout.discrete_sizes
        self._discrete_columns = list(layout.discrete_actions)
        self._box_columns = list(layout.box_actions)
        self._low, self._high = (np.array(bounds, float) for bounds in _bounds(space))  # [box values]
        self._is_bounded = np.isfinite(self._low) & np.isfinite(self._high)
        self._begin = np.where(self._is_bounded, self._low, 0.0)
        self._width = np.where(self._is_bounded, self._high, 0.0) - self._begin

    def draw(self, rng: np.random.Generator, num_agents: int, mask: np.ndarray | None) -> np.ndarray:
        """Returns [num_agents, num_values]. mask: [num_agents, sum of the sizes] bool, or None."""
        actions = np.zeros((num_agents, self.num_values))
        # Uniform within bounds; without them, standard normal numbers, cut at a single bound.
        shape = num_agents, len(self._low)
        normal = np.clip(rng.standard_normal(shape), self._low, self._high)
        uniform = self._begin + self._width * rng.random(shape)
        actions[:, self._box_columns] = np.where(self._is_bounded, uniform, normal)
        if mask is None:
            shape = num_agents, len(self._sizes)
            actions[:, self._discrete_columns] = rng.integers(self._sizes, size=shape)
            return actions
        parts = np.split(mask, np.cumsum(self._sizes)[:-1], axis=1)
        for column, allowed in zip(self._discrete_columns, parts):
            actions[:, column] = (rng.random(allowed.shape) * allowed).argmax(axis=1)
        return actions


def _bounds(space: gym.Space[Any]) -> tuple[list[float], list[float]]:
    """Returns the lower and upper bounds of the Box components of a space, in order."""
    if isinstance(space, gym.spaces.Box):
        return space.low.ravel().tolist(), space.high.ravel().tolist()
    parts = [_bounds(part) for part in space.spaces] if isinstance(space, gym.spaces.Tuple) else []
    return [number for low, _ in parts for number in low], [number for _, high in parts for number in high]
