"""Checks of what a user's env returns. Every error says what was returned, and what it should be.

The first observations of each env are checked in full, later ones only where it costs next to nothing.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sample_factory.envs.protocol import COST, EnvContractError, Info, check_array
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import Indices

NUM_CHECKED = 4  # observations of each agent that are checked in full
NUMBERS = (float, int, np.generic)
COST_ENTRY = f"info[{COST!r}]"


def check_reset_parameters(env: Any) -> None:
    """Raises EnvContractError if the `reset` of an env, or of a wrapper around it, has no parameter `seed`.
    An env inside a user's wrapper that accepts `seed` is not checked: it may have the old API."""
    layers = [env]
    while isinstance(layers[-1], (gym.Wrapper, gym.vector.VectorWrapper)) and not _takes_seed_itself(
        layers[-1]
    ):
        layers.append(layers[-1].env)
    for layer in layers:
        try:
            parameters = inspect.signature(layer.reset).parameters
        except (TypeError, ValueError):  # some functions of C extensions have no signature
            continue
        has_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if not has_any and "seed" not in parameters:
            raise EnvContractError(
                f"{type(layer).__name__}.reset has no parameter `seed`; it should be "
                "reset(self, *, seed=None, options=None)"
            )


def _takes_seed_itself(wrapper: Any) -> bool:
    """Returns whether a user's wrapper overrides `reset` with a method that has a parameter `seed`."""
    is_own = not type(wrapper).reset.__module__.startswith("gymnasium.")
    return is_own and "seed" in inspect.signature(wrapper.reset).parameters


def refuse(call: str, value: Any, name: str, wanted: str) -> NoReturn:
    """Raises EnvContractError: the env's `call`, e.g. "step", returned `value` for `name`, e.g. "the reward",
    but it should be `wanted`. An empty name is left out of the message."""
    what = f" for {name}" if name else ""
    raise EnvContractError(f"{call} returned {describe(value)}{what}; it should be {wanted}")


def unpack_reset(returned: Any) -> tuple[Any, Any]:
    """Splits what a user's `reset` returned into (observation, info). Raises EnvContractError unless it is a
    pair."""
    if isinstance(returned, tuple) and len(returned) == 2 and not isinstance(returned[1], np.ndarray):
        return returned
    refuse("reset", returned, "", "two values, (observation, info)")


def check_step(returned: Any, each: str = "") -> None:
    """Raises EnvContractError unless a user's `step` returned five values. each: describes each of the five
    in the message, e.g. "each a list with an entry per agent"."""
    if isinstance(returned, (tuple, list)) and len(returned) == 5:
        return
    has_many = isinstance(returned, (tuple, list))
    raise EnvContractError(
        f"step returned {f'{len(returned)} values' if has_many else describe(returned)}; it should return 5: "
        f"observation, reward, terminated, truncated, info{f', {each}' if each else ''}"
    )


def check_info(info: Any, call: str) -> None:
    """Raises EnvContractError unless an info is a dict. call: "reset" or "step"."""
    if not isinstance(info, Mapping):
        refuse(call, info, "the info", "a dict")


def to_bool(name: str, value: Any) -> bool:
    """Converts a flag that a user's `step` returned to bool. Raises EnvContractError unless it is a single
    bool or integer. name: "terminated" or "truncated"."""
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biu":
        return bool(array.item())
    refuse("step", value, name, "True or False")


def to_number(reward: Any, name: str = "the reward") -> float:
    """Converts a number that a user's `step` returned, or an array of one number, to float. Raises
    EnvContractError for anything else. name: what an error calls the number."""
    if isinstance(reward, NUMBERS):
        return float(reward)
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        refuse("step", reward, name, "a number")
    return float(array.item())


def to_numbers(rewards: Any) -> Sequence[float] | np.ndarray:
    """Copies the agents' rewards to an array or list of floats, [num_agents]. Raises EnvContractError for a
    reward that is neither a number nor an array of one number."""
    if isinstance(rewards, np.ndarray) and rewards.ndim == 1 and rewards.dtype.kind in "biuf":
        return rewards.copy()
    return list(map(to_number, rewards))


def costs_in(infos: Sequence[Info]) -> list[float] | None:
    """Returns the cost of a step for each agent, [num_agents], read from the entry COST in the agents' infos;
    0 for an agent without the entry, and None if no info has it. Raises EnvContractError for a cost that is
    no number."""
    if not any(COST in info for info in infos):
        return None
    return [to_number(info.get(COST, 0.0), COST_ENTRY) for info in infos]


def check_entries(num_agents: int, entries: Mapping[str, Any]) -> None:
    """Raises EnvContractError unless each value is a list, tuple or array with an entry per agent. entries:
    name for the message, e.g. "rewards" -> value."""
    for name, value in entries.items():
        if not isinstance(value, (list, tuple, np.ndarray)) or len(value) != num_agents:
            refuse(
                "the env", value, f"the {name}", f"a list with an entry for each of the {num_agents} agents"
            )


def check_observation(space: spaces.Space[Any], observation: Any, key: str = "") -> None:
    """Raises EnvContractError unless an observation fits its space. key: key of a part of the agent's
    observation, as it is stored; empty for the whole observation."""
    name = f"observation {key!r}" if key else "the observation"
    if isinstance(space, spaces.Dict):
        keys = ", ".join(map(str, space))
        if not isinstance(observation, Mapping) or observation.keys() != space.spaces.keys():
            raise EnvContractError(
                f"{name} is {describe(observation)}; its space says a dict with the keys {keys}"
            )
        for child_key, child in space.spaces.items():
            check_observation(child, observation[child_key], f"{key}/{child_key}" if key else str(child_key))
    elif isinstance(space, spaces.Tuple):
        if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
            raise EnvContractError(
                f"{name} is {describe(observation)}; its space says a tuple of {len(space.spaces)}"
            )
        for i, child in enumerate(space.spaces):
            check_observation(child, observation[i], f"{key or 'obs'}_{i}")
    else:
        _check_leaf(space, observation, key or "obs")


def _check_leaf(space: spaces.Space[Any], value: Any, key: str) -> None:
    array = np.asarray(value)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = np.asarray(space.start)
        size = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        is_index = array.size == size.size and array.dtype.kind in "iu"
        if not is_index or not np.all((array >= start) & (array < start + size)):
            raise EnvContractError(
                f"observation {key!r} is {describe(value)}, which is not in its space {space}"
            )
    elif space.shape is not None and space.dtype is not None:
        check_array(key, array, space.shape, space.dtype)
        if isinstance(space, Indices):
            _check_indices(space, array, key)


def _check_indices(space: Indices, indices: np.ndarray, key: str) -> None:
    """Raises EnvContractError for an index outside the range of its component: a network has one embedding
    table for all components of an observation, and would look up an entry of another component."""
    is_outside = (indices < 0) | (indices > space.high)
    if is_outside.any():
        raise EnvContractError(
            f"observation {key!r} has the index {indices[is_outside][0]}; its space allows 0 to "
            f"{space.high[is_outside][0]}"
        )


def describe(value: Any) -> str:
    """Returns a few words about a value that a user's env returned, for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}" if value.ndim else str(value)
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(map(str, value))}" if value else "an empty dict"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else f"an object of type {type(value).__name__}"


def check_agent_results(terminated: Sequence[Any], truncated: Sequence[Any], infos: Sequence[Any]) -> None:
    """Raises EnvContractError unless all flags are single bools or integers, and all infos are dicts. Each
    argument has an entry per agent."""
    for name, flags in (("terminated", terminated), ("truncated", truncated)):
        for flag in flags:
            to_bool(name, flag)
    for info in infos:
        check_info(info, "step")


def same_layout(first: AgentKinds, second: AgentKinds) -> bool:
    """Returns whether the observations and actions of two envs fit the same buffers and networks: their kinds
    of agents are equal except for the bounds of a Box."""
    return _layout(first) == _layout(second)


def _layout(kinds: AgentKinds) -> list[Any]:
    observed = [
        {
            key: (box.shape, box.dtype, box.sizes if isinstance(box, Indices) else None)
            for key, box in kind.observation.spaces.items()
        }
        for kind in kinds.spaces
    ]
    return [kinds.of_agent, observed, [action_layout(kind.action) for kind in kinds.spaces]]
