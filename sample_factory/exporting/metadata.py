"""Texts that describe an exported policy in its file, some of them JSON. Imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config import VERSION
from sample_factory.config.config import Config
from sample_factory.envs.abilities import NamesActions, find_ability
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.own_spaces import OwnSpaces
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.exporting.signature import ActionPart, ObservationInput, Signature
from sample_factory.spaces.actions import Discretized, action_decoder

MAX_NAMED = 100  # choices of an action whose meaning is listed


def make_metadata(
    config: Config,
    family: EnvFamily,
    choice: PolicyChoice,
    signature: Signature,
    state: Mapping[str, Any],
    meanings: Mapping[str, list[str]],
) -> dict[str, str]:
    """Returns the texts by name; see sample_factory/exporting/README.md.

    state: the contents of the checkpoint. meanings: see `action_meanings`.
    """
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
        "observations": json.dumps([_describe_observation(entry) for entry in signature.observations]),
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
    neutral = np.concatenate([_neutral(part) for part in signature.parts])
    meanings = {}
    for part in signature.parts:
        if isinstance(part.space, gym.spaces.Discrete) and part.space.n <= MAX_NAMED:
            rows = np.tile(neutral, (int(part.space.n), 1))
            rows[:, part.values.start] = np.arange(part.space.n)
            meanings[part.action] = [namer.action_text(decode(row)) for row in rows]
    return meanings


def _neutral(part: ActionPart) -> np.ndarray:
    """Returns the columns of an action that does least: zeros, the first choices, or the number next to 0."""
    row = np.zeros(part.values.stop - part.values.start, np.float32)
    if isinstance(part.space, Discretized):
        row[:] = np.abs(part.space.values).argmin()
    return row


def _describe_observation(entry: ObservationInput) -> dict[str, Any]:
    return {
        "key": entry.key,
        "input": entry.name,
        "dtype": str(entry.dtype),
        "shape": entry.shape,
        "space": " ".join(str(entry.space).split()),
    }


def _describe_action(part: ActionPart, meanings: Mapping[str, list[str]]) -> dict[str, Any]:
    space = part.space
    described: dict[str, Any] = {"output": part.action, "type": type(space).__name__}
    if isinstance(space, gym.spaces.Discrete):
        described |= {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    elif isinstance(space, gym.spaces.MultiDiscrete):
        described |= {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    else:
        assert isinstance(space, gym.spaces.Box)
        described |= {"shape": space.shape, "low": _bound(space.low), "high": _bound(space.high)}
    if isinstance(space, Discretized):
        described["values"] = space.values.tolist()
    if part.action in meanings:
        described["meanings"] = meanings[part.action]
    return described | dict(zip(("mean", "stddev") if part.is_box else ("logits",), part.parameters))


def _bound(bounds: np.ndarray) -> Any:
    """Returns nested lists, with None for no bound, which JSON has no number for."""
    numbers = bounds.astype(object)
    numbers[~np.isfinite(bounds)] = None
    return numbers.tolist()
