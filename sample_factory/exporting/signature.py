"""Inputs and outputs of an exported policy: names, shapes, dtypes, and texts about them. Imports no torch."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config import VERSION
from sample_factory.config.config import Config
from sample_factory.envs.abilities import NamesActions, find_ability
from sample_factory.envs.env_info import OwnSpaces
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.spaces.actions import Discretized, action_decoder, action_layout
from sample_factory.spaces.observations import leaf_spaces

RNN_STATE = "rnn_state"
NEXT_RNN_STATE = "next_rnn_state"
VALUE = "value"
MAX_NAMED = 100  # choices of an action whose meaning is listed


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


def make_metadata(
    config: Config,
    family: EnvFamily,
    choice: PolicyChoice,
    signature: Signature,
    state: Mapping[str, Any],
    meanings: Mapping[str, list[str]],
) -> dict[str, str]:
    """Returns texts that describe the policy, by name; see sample_factory/exporting/README.md.

    state: the contents of the checkpoint. meanings: see `action_meanings`.
    """
    observations = [
        {
            "key": entry.key,
            "input": entry.name,
            "dtype": str(entry.dtype),
            "shape": entry.shape,
            "space": " ".join(str(entry.space).split()),
        }
        for entry in signature.observations
    ]
    texts = {
        "sample_factory": VERSION,
        "env": config.env_name,
        "env_frameskip": (config.env.env_frameskip or 1) * family.action_repeat,
        "env_framestack": config.env.env_framestack,
        "experiment": config.run.experiment,
        "policy_index": choice.policy_index,
        "checkpoint": Path(choice.checkpoint).name,  # of a file, not its folders
        "train_steps": state.get("train_step", 0),
        "env_frames": state.get("env_steps", 0),
        "rnn_state_size": signature.state_size,
        "observations": json.dumps(observations),
        "actions": json.dumps([_describe_action(part, meanings) for part in signature.parts]),
    }
    return {name: str(value) for name, value in texts.items()}


def action_meanings(env: MultiAgentEnv, own: OwnSpaces, signature: Signature) -> dict[str, list[str]]:
    """Returns what the choices of each single choice mean, by the name of its output; nothing for an env that
    does not name its actions. Call it after the env's first reset.
    """
    namer = find_ability(env.env, NamesActions)
    if type(namer) is NamesActions:  # stands for an env without names
        return {}
    decode = action_decoder(own.action)
    neutral = np.zeros(sum(part.values.stop - part.values.start for part in signature.parts), np.float32)
    for part in signature.parts:  # what does least: zeros, the first choices, or the number next to 0
        if isinstance(part.space, Discretized):
            neutral[part.values] = np.abs(part.space.values).argmin()
    meanings = {}
    for part in signature.parts:
        if isinstance(part.space, gym.spaces.Discrete) and part.space.n <= MAX_NAMED:
            rows = np.tile(neutral, (int(part.space.n), 1))
            rows[:, part.values.start] = np.arange(part.space.n)
            meanings[part.action] = [namer.action_text(decode(row)) for row in rows]
    return meanings


def _describe_action(part: ActionPart, meanings: Mapping[str, list[str]]) -> dict[str, Any]:
    space = part.space
    described: dict[str, Any] = {"output": part.action, "type": type(space).__name__}
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
    if part.action in meanings:
        described["meanings"] = meanings[part.action]
    return described | dict(zip(("mean", "stddev") if part.is_box else ("logits",), part.parameters))
