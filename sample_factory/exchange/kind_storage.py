"""How agents with different spaces share the memory of the trajectory buffers."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.runtime.shared_arrays import ArraySpec
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds


class RowLayout(NamedTuple):
    """Where things stand in one packed row of policy outputs, float32."""

    num_action_values: int
    num_logits: int

    @property
    def actions(self) -> slice:
        return slice(0, self.num_action_values)

    @property
    def log_prob(self) -> int:
        return self.num_action_values

    @property
    def value(self) -> int:
        return self.num_action_values + 1

    @property
    def logits(self) -> slice:
        return slice(self.num_action_values + 2, self.size)

    @property
    def size(self) -> int:
        return self.num_action_values + 2 + self.num_logits


class KindLayout(NamedTuple):
    """What is stored of agents of one kind; observation_space: Dict of Box."""

    observation_space: gym.spaces.Dict
    rows: RowLayout


def kind_layouts(kinds: AgentKinds) -> list[KindLayout]:
    """Returns the layout of each kind. Raises ValueError for an unsupported action space."""
    layouts = [(space.observation, action_layout(space.action)) for space in kinds.spaces]
    return [KindLayout(space, RowLayout(own.num_action_values, own.num_logits)) for space, own in layouts]


class KindStorage:
    """All N buffers as agents of one kind use them: views of memory that the kinds share.

    obs[key]  [N, T+1, *shape]
    outputs   [N, T, K] float32, see `rows`
    """

    def __init__(self, layout: KindLayout, slots: Sequence[np.ndarray], outputs: np.ndarray):
        """slots: as `observation_slots` says. outputs: as wide as the widest kind's."""
        self.rows = layout.rows
        self.outputs = outputs[..., : layout.rows.size]
        num_steps = outputs.shape[1] + 1
        keys = _keys_by_size(layout.observation_space)
        views = {key: _view(slot, layout.observation_space[key], num_steps) for key, slot in zip(keys, slots)}
        self.obs = {key: views[key] for key in layout.observation_space.spaces}
        # ndarray.take, several times as fast as an index of two arrays, would copy all of a view with gaps.
        self._flat = {
            key: view.reshape(-1, *view.shape[2:])
            for key, view in self.obs.items()
            if view.flags.c_contiguous
        }

    def row_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of one observation, by key."""
        return {key: (view.shape[2:], view.dtype) for key, view in self.obs.items()}

    def read_observations(
        self, buffers: np.ndarray, steps: np.ndarray, into: Mapping[str, np.ndarray]
    ) -> None:
        """Copies what is at (buffers, steps), int arrays of shape S or broadcast to it, into [*S, *shape]."""
        num_buffers, num_steps = len(self.outputs), self.outputs.shape[1] + 1
        rows = buffers * num_steps + steps
        assert rows.min() >= 0 and rows.max() < num_buffers * num_steps, "there are no such buffers"
        for key, view in self.obs.items():
            if key in self._flat:
                # The mode that checks the rows itself would make a copy first.
                self._flat[key].take(rows, axis=0, out=into[key], mode="clip")
            else:
                into[key][...] = view[buffers, steps]


def observation_slots(layouts: Sequence[KindLayout], num_buffers: int, num_steps: int) -> list[ArraySpec]:
    """Memory for observations: slot i holds each kind's i-th largest observation, and is as wide as needed.

    With one kind, slots are exactly as large as the observations, and so the views of them have no gaps.
    """
    specs: list[ArraySpec] = []
    ordered = [
        [layout.observation_space[key] for key in _keys_by_size(layout.observation_space)]
        for layout in layouts
    ]
    for i in range(max(map(len, ordered))):
        boxes = [kind[i] for kind in ordered if i < len(kind)]
        unit = max(box.dtype.itemsize for box in boxes)
        size = num_steps * max(map(_nbytes, boxes))
        specs.append(ArraySpec((num_buffers, -(-size // unit) * unit), np.uint8))
    return specs


def _keys_by_size(space: gym.spaces.Dict) -> list[str]:
    return sorted(space.spaces, key=lambda key: -_nbytes(space[key]))


def _nbytes(box: gym.spaces.Box) -> int:
    return math.prod(box.shape) * box.dtype.itemsize


def _view(slot: np.ndarray, box: gym.spaces.Box, num_steps: int) -> np.ndarray:
    """[N, num_steps, *shape] over a slot [N, bytes]."""
    of_one = np.ndarray((num_steps, *box.shape), box.dtype, buffer=slot)
    shape, strides = (len(slot), *of_one.shape), (slot.strides[0], *of_one.strides)
    return np.ndarray(shape, box.dtype, buffer=slot, strides=strides)
