"""Inputs and outputs of an exported policy: names, shapes, dtypes, and texts about them. Imports no torch."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.envs.abilities import NamesActions, find_ability
from sample_factory.envs.env_info import OwnSpaces
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.spaces.actions import Discretized, action_decoder, action_layout
from sample_factory.spaces.observations import leaf_spaces

MAX_NAMED = 100  # choices of an action whose meaning is listed


class ObservationInput(NamedTuple):
    """One entry of the flat dict of observations.

    key: in that dict. name: of the input. space: as the env has it, of a single observation.
    shape: without the batch; of `space`, or of a stack of its images (--env_framestack).
    """

    key: str
    name: str
    space: gym.Space[Any]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the env's observation."""
        return np.dtype(self.space.dtype)

    def as_given(self, stored: np.ndarray) -> np.ndarray:
        """Returns the observations [B, *shape] of the env for rows [B, ...] as they are stored."""
        if isinstance(self.space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            stored = stored + np.ravel(self.space.start)
        return stored.reshape(-1, *self.shape).astype(self.dtype)

    def describe(self) -> dict[str, Any]:
        """Returns a description for JSON."""
        space = " ".join(str(self.space).split())
        names = {"key": self.key, "input": self.name}
        return {**names, "dtype": str(self.dtype), "shape": self.shape, "space": space}


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
    def parameters(self) -> dict[str, str]:
        """The parameters of the distribution of the action -> the names of their outputs."""
        return {name: f"{name}{self.suffix}" for name in (("mean", "stddev") if self.is_box else ("logits",))}

    def describe(self) -> dict[str, Any]:
        """Returns a description for JSON."""
        space = self.space
        described: dict[str, Any] = {"output": self.action, "type": type(space).__name__, **self.parameters}
        if isinstance(space, gym.spaces.Discrete):
            described |= {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        elif isinstance(space, gym.spaces.MultiDiscrete):
            described |= {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        else:
            assert isinstance(space, gym.spaces.Box)
            bounds = [bound.astype(object) for bound in (space.low, space.high)]
            for bound in bounds:
                bound[~np.isfinite(bound.astype(float))] = None  # JSON has no number for it
            described |= {"shape": space.shape, "low": bounds[0].tolist(), "high": bounds[1].tolist()}
        if isinstance(space, Discretized):
            described["values"] = space.values.tolist()
        return described


def observation_inputs(
    own: gym.Space[Any], stored: gym.spaces.Dict, reserved: Collection[str]
) -> Iterator[ObservationInput]:
    """Yields the inputs for observations.

    own: observations of an agent as the env has them. stored: as the network gets them, with stacked images
    if --env_framestack says so. reserved: names of other inputs and outputs; all names in a file differ.
    """
    leaves = {key: space for key, space in leaf_spaces(own).items() if key in stored.spaces}
    for key, space in leaves.items():
        name = key
        while name in reserved or (name != key and name in leaves):
            name = f"observation_{name}"
        is_array = isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary)
        shape = stored.spaces[key].shape if is_array else space.shape
        yield ObservationInput(key, name, space, shape or ())


def action_parts(
    space: gym.Space[Any], suffix: str = "", value: int = 0, logit: int = 0
) -> Iterator[ActionPart]:
    """Yields the parts of an action space. value, logit: the first columns of the space."""
    layout = action_layout(space)
    if not isinstance(space, gym.spaces.Tuple):
        values = slice(value, value + layout.num_action_values)
        yield ActionPart(space, suffix, values, slice(logit, logit + layout.num_logits))
        return
    for index, inner in enumerate(space.spaces):
        yield from action_parts(inner, f"{suffix}_{index}", value, logit)
        value += action_layout(inner).num_action_values
        logit += action_layout(inner).num_logits


def describe_actions(env: MultiAgentEnv, own: OwnSpaces, parts: Sequence[ActionPart]) -> list[dict[str, Any]]:
    """Returns a description of each part of the actions, for JSON.

    What the choices mean is listed for an env that names its actions. Call it after the env's first reset.
    """
    namer = find_ability(env.env, NamesActions)
    is_named = type(namer) is not NamesActions  # which stands for an env without names
    decode = action_decoder(own.action)
    neutral = np.zeros(sum(part.values.stop - part.values.start for part in parts), np.float32)
    for part in parts:  # what does least: zeros, the first choices, or the number next to 0
        if isinstance(part.space, Discretized):
            neutral[part.values] = np.abs(part.space.values).argmin()
    described = [part.describe() for part in parts]
    for part, texts in zip(parts, described):
        if is_named and isinstance(part.space, gym.spaces.Discrete) and part.space.n <= MAX_NAMED:
            rows = np.tile(neutral, (int(part.space.n), 1))
            rows[:, part.values.start] = np.arange(part.space.n)
            texts["meanings"] = [namer.action_text(decode(row)) for row in rows]
    return described
