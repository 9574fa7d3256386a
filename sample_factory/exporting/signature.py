"""Inputs and outputs of an exported policy: their names, shapes and dtypes. Imports no torch."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.envs.own_spaces import OwnSpaces
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.observations import leaf_spaces

RNN_STATE = "rnn_state"
NEXT_RNN_STATE = "next_rnn_state"
VALUE = "value"


class ObservationInput(NamedTuple):
    """One entry of the flat dict of observations.

    key: in that dict. name: of the input. space: as the env has it, of a single observation.
    shape: without the batch; that of `space`, or of a stack of its images (--env_framestack).
    """

    key: str
    name: str
    space: gym.Space[Any]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the env's observation."""
        return np.dtype(self.space.dtype)


class ActionPart(NamedTuple):
    """A Discrete, MultiDiscrete or Box space: the whole action space, or an entry of a Tuple.

    suffix: of the names of its outputs; "" unless it lies in a Tuple.
    values: its columns in a row of actions. logits: its columns in a row of logits.
    """

    space: gym.Space[Any]
    suffix: str
    values: slice
    logits: slice

    @property
    def is_box(self) -> bool:
        return isinstance(self.space, gym.spaces.Box)

    @property
    def action(self) -> str:
        """The name of the output with the action that the env takes."""
        return f"action{self.suffix}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the outputs with which one can draw an action at random."""
        names = ("mean", "stddev") if self.is_box else ("logits",)
        return tuple(f"{name}{self.suffix}" for name in names)


class Signature(NamedTuple):
    """All inputs and outputs of an exported policy, each with a first axis of any size.

    state_size: floats of the recurrent state of a row; 0: there is no such input and output.
    has_value: whether the value is an output.
    """

    observations: tuple[ObservationInput, ...]
    parts: tuple[ActionPart, ...]
    state_size: int
    has_value: bool

    @property
    def inputs(self) -> list[str]:
        return [entry.name for entry in self.observations] + [RNN_STATE] * (self.state_size > 0)

    @property
    def outputs(self) -> list[str]:
        names = _outputs_of(self.parts)
        return [*names, *[NEXT_RNN_STATE] * (self.state_size > 0), *[VALUE] * self.has_value]

    @property
    def choices(self) -> dict[str, ActionPart]:
        """The outputs that are indices of choices, by their names."""
        return {part.action: part for part in self.parts if not part.is_box}


def make_signature(own: OwnSpaces, stored: gym.spaces.Dict, state_size: int, has_value: bool) -> Signature:
    """Returns the signature of a policy.

    own: the spaces of an agent as the env has them. stored: the observations as the network gets them, with
    stacked images if --env_framestack says so.
    """
    parts = tuple(_parts(own.action, "", 0, 0))
    reserved = {RNN_STATE, NEXT_RNN_STATE, VALUE, *_outputs_of(parts)}
    leaves = leaf_spaces(own.observation)
    observations = []
    for key, space in leaves.items():
        name = key
        while name in reserved or (name != key and name in leaves):  # in a file all names are different
            name = f"observation_{name}"
        is_array = isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary)
        shape = stored.spaces[key].shape if is_array else space.shape
        observations.append(ObservationInput(key, name, space, shape or ()))
    return Signature(tuple(observations), parts, state_size, has_value)


def _outputs_of(parts: tuple[ActionPart, ...]) -> list[str]:
    return [*(part.action for part in parts), *(name for part in parts for name in part.parameters)]


def _parts(space: gym.Space[Any], suffix: str, value: int, logit: int) -> Iterator[ActionPart]:
    """value, logit: the first columns of the space."""
    if isinstance(space, gym.spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            layout = action_layout(inner)
            yield from _parts(inner, f"{suffix}_{index}", value, logit)
            value += layout.num_action_values
            logit += layout.num_logits
        return
    layout = action_layout(space)
    values = slice(value, value + layout.num_action_values)
    yield ActionPart(space, suffix, values, slice(logit, logit + layout.num_logits))
