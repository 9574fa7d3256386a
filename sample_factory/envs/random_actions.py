"""Random actions, for the first steps of envs and for sampling without a network."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.spaces.actions import ACTION_MASK, WIDEST_RANGE, action_layout, action_leaves
from sample_factory.spaces.agent_kinds import AgentKinds


class RandomActions:
    """Draws a random action for each agent of an env; never one that the agent's `action_mask` forbids.

    Numbers are uniform within bounds; without bounds, standard normal; with a single bound, normal and
    clipped at it.
    """

    def __init__(self, kinds: AgentKinds, seed: int | None):
        of_agent = np.array(kinds.of_agent)
        self._kinds = [
            (np.flatnonzero(of_agent == kind), action_layout(spaces.action), _bounds(spaces.action))
            for kind, spaces in enumerate(kinds.spaces)
        ]
        self._shape = len(of_agent), max(layout.num_action_values for _, layout, _ in self._kinds)
        self.has_masks = any(ACTION_MASK in spaces.observation.spaces for spaces in kinds.spaces)
        self._rng = np.random.default_rng(seed)

    def __call__(self, rows: ObservationRows) -> np.ndarray:
        """Returns a random action of each agent, [num_agents, K] float32: for each of the K components of the
        action space, an index or a number.

        rows: the agents' observations, read only for action masks.
        """
        actions = np.zeros(self._shape, np.float32)
        for agents, layout, (low, high) in self._kinds:
            shape = len(agents), len(low)
            is_bounded = high / 2 - low / 2 < WIDEST_RANGE
            numbers = np.clip(self._rng.standard_normal(shape), low, high)
            uniform = self._rng.uniform(np.where(is_bounded, low, 0), np.where(is_bounded, high, 0), shape)
            actions[agents[:, None], layout.box_actions] = np.where(is_bounded, uniform, numbers)
            sizes = layout.discrete_sizes
            choices = self._rng.integers(sizes, size=(len(agents), len(sizes)))
            mask = rows.arrays_of(agents[0]).get(ACTION_MASK)
            if mask is not None:
                allowed = mask[rows.buffers[agents], rows.step].reshape(len(agents), -1) != 0
                for i, part in enumerate(np.split(allowed, np.cumsum(sizes)[:-1], axis=1)):
                    choices[:, i] = (self._rng.random(part.shape) * part).argmax(axis=1)
            actions[agents[:, None], layout.discrete_actions] = choices
        return actions


def _bounds(space: gym.Space[Any]) -> np.ndarray:
    """Returns the lower and upper bounds of the Box components of a space, in order, [2, box values]. Bounds
    of integers are widened by 0.5, so that each integer is equally likely after rounding."""
    boxes = [leaf for _, leaf in action_leaves(space) if isinstance(leaf, gym.spaces.Box)]
    margins = [0.0 if box.dtype.kind == "f" else 0.5 for box in boxes]
    bounds = [
        np.stack(
            [
                np.where(box.bounded_below, box.low - margin, -np.inf).ravel(),
                np.where(box.bounded_above, box.high + margin, np.inf).ravel(),
            ]
        )
        for box, margin in zip(boxes, margins)
    ]
    return np.concatenate([np.zeros((2, 0)), *bounds], axis=1)
