"""Memory of the trajectory buffers, shared by agents with different spaces."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.runtime.shared_arrays import ArraySpec
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds


class RowLayout(NamedTuple):
    """Columns of one packed row of policy outputs, float32."""

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
    """Observations and outputs of agents of one kind. observation_space: Dict of Box."""

    observation_space: gym.spaces.Dict
    rows: RowLayout


def kind_layouts(kinds: AgentKinds) -> list[KindLayout]:
    """Returns the layout of each kind. Raises UnsupportedSpace for an unsupported action space."""
    layouts = [(space.observation, action_layout(space.action)) for space in kinds.spaces]
    return [KindLayout(space, RowLayout(own.num_action_values, own.num_logits)) for space, own in layouts]


class KindStorage:
    """All N buffers as agents of one kind use them: views of memory that all kinds share.

    obs[key]: [N, T+1, *shape].
    outputs: [N, T, K] float32, with columns as in `rows`.
    """

    def __init__(self, layout: KindLayout, slots: Sequence[np.ndarray], outputs: np.ndarray):
        """slots: arrays of `observation_slots`. outputs: [N, T, K of the widest kind] float32."""
        self.rows = layout.rows
        self.outputs = outputs[..., : layout.rows.size]
        num_steps = outputs.shape[1] + 1
        boxes = _boxes_by_size(layout.observation_space)
        views = {key: _view(slot, box, num_steps) for (key, box), slot in zip(boxes.items(), slots)}
        self.obs = {key: views[key] for key in layout.observation_space.spaces}
        # ndarray.take, several times as fast as an index of two arrays, would copy all of a view with gaps.
        self._flat = {
            key: view.reshape(-1, *view.shape[2:])
            for key, view in self.obs.items()
            if view.flags.c_contiguous
        }

    def row_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns shape and dtype of one observation, by key."""
        return {key: (view.shape[2:], view.dtype) for key, view in self.obs.items()}

    def read_observations(
        self, buffer_indices: np.ndarray, steps: np.ndarray, into: Mapping[str, np.ndarray]
    ) -> None:
        """Copies the observations at (buffer_indices, steps) to `into`.

        buffer_indices, steps: int arrays of shape S, or broadcast to S. into[key]: [*S, *shape].
        """
        num_buffers = len(self.outputs)
        num_steps = self.outputs.shape[1] + 1
        rows = buffer_indices * num_steps + steps
        assert rows.min() >= 0 and rows.max() < num_buffers * num_steps, "(buffer, step) is out of range"
        for key, view in self.obs.items():
            if key in self._flat:
                # The mode that checks the rows itself would copy twice.
                self._flat[key].take(rows, axis=0, out=into[key], mode="clip")
            else:
                into[key][...] = view[buffer_indices, steps]


def observation_slots(layouts: Sequence[KindLayout], num_buffers: int, num_steps: int) -> list[ArraySpec]:
    """Returns the memory for observations: slot i holds the i-th largest observation of every kind.

    With one kind, slots are exactly as large as the observations, so the views of them have no gaps.
    """
    specs: list[ArraySpec] = []
    boxes_of_kinds = [list(_boxes_by_size(layout.observation_space).values()) for layout in layouts]
    for i in range(max(map(len, boxes_of_kinds))):
        boxes = [of_kind[i] for of_kind in boxes_of_kinds if i < len(of_kind)]
        unit = max(np.dtype(box.dtype).itemsize for box in boxes)
        size = num_steps * max(map(_nbytes, boxes))
        specs.append(ArraySpec((num_buffers, -(-size // unit) * unit), np.uint8))
    return specs


def _boxes_by_size(space: gym.spaces.Dict) -> dict[str, gym.spaces.Box]:
    """Returns the observations by key, the largest first."""
    boxes = {key: box for key, box in space.spaces.items() if isinstance(box, gym.spaces.Box)}
    assert len(boxes) == len(space.spaces), f"{space} must be a Dict of Box"
    return dict(sorted(boxes.items(), key=lambda item: -_nbytes(item[1])))


def _nbytes(box: gym.spaces.Box) -> int:
    return math.prod(box.shape) * np.dtype(box.dtype).itemsize


def _view(slot: np.ndarray, box: gym.spaces.Box, num_steps: int) -> np.ndarray:
    """Returns a view [N, num_steps, *shape] of a slot [N, bytes] uint8."""
    one_buffer: np.ndarray = np.ndarray((num_steps, *box.shape), box.dtype, buffer=slot)
    shape = (len(slot), *one_buffer.shape)
    strides = (slot.strides[0], *one_buffer.strides)
    return np.ndarray(shape, box.dtype, buffer=slot, strides=strides)
