"""Spaces of one env of a batched simulator, from what the simulator declares and from its observations."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sample_factory.envs import contract
from sample_factory.envs.adapters.old_gym import to_gymnasium
from sample_factory.envs.adapters.simulator_values import find
from sample_factory.envs.conventions import name_of
from sample_factory.envs.protocol import EnvContractError
from sample_factory.spaces.observations import UnsupportedSpace


def observation_space(env: Any, observations: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of the observation of one env. observations: the first ones of all, on the host."""
    names = ("single_observation_space", "observation_space")
    declared = next((space for name in names if (space := find(env, name)) is not None), None)
    try:
        declared = None if declared is None else _converted(declared)
    except UnsupportedSpace:
        declared = None
    return space_of(observations, declared, num_envs, "obs")


def space_of(observations: Any, declared: Any, num_envs: int, key: str) -> spaces.Space[Any]:
    """Returns the space of one env by the observations of all of them, on the host.

    declared: the space by the simulator, of one env or of all, used where it fits. key: for an error.
    """
    if isinstance(observations, Mapping):
        known = declared.spaces if isinstance(declared, spaces.Dict) else {}
        return spaces.Dict(
            {
                name: space_of(value, known.get(name), num_envs, str(name))
                for name, value in observations.items()
            }
        )
    array = np.asarray(() if isinstance(observations, (tuple, list)) else observations)
    if array.ndim == 0 or len(array) != num_envs or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"observation {key!r} is {contract.describe(observations)}; it should be an array with an entry "
            f"for each of the {num_envs} envs, or a dict of these"
        )
    if array.dtype == np.uint8 and isinstance(declared, spaces.Box) and not declared.is_bounded():
        declared = None  # it does not say that these are pixels
    for space in () if declared is None else (declared, _of_one(declared, num_envs)):
        # Isaac Lab's indices are [N, 1].
        shape = () if isinstance(space, spaces.Discrete) and array.shape[1:] == (1,) else array.shape[1:]
        if space.shape == shape and np.can_cast(array.dtype, space.dtype, "same_kind"):
            return space
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)


def action_space(env: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of an action of one env. Raises UnsupportedSpace if it is not known."""
    single = find(env, "single_action_space")
    if single is not None:
        return _converted(single)
    num_actions = find(env, "num_actions")
    declared = find(env, "action_space")
    if declared is not None:
        space = _converted(declared)
        is_single = num_actions is not None or not _is_batched(find(env, "observation_space"), num_envs)
        if is_single and isinstance(space, (spaces.MultiDiscrete, spaces.Dict, spaces.Tuple)):
            return space
        of_one = _of_one(space, num_envs)
        # As Gymnasium batches a MultiDiscrete and a MultiBinary.
        is_whole = not is_single and isinstance(of_one, spaces.Box)
        is_whole = is_whole and not np.issubdtype(of_one.dtype, np.floating)
        if isinstance(space, (spaces.Dict, spaces.Tuple)) or (is_whole and of_one is not space):
            text = "has an action_space of all envs that does not show that of one: set single_action_space"
            raise UnsupportedSpace(f"{name_of(env)} {text}")
        return of_one
    if num_actions is None:
        raise UnsupportedSpace(f"{name_of(env)} has neither an action_space nor num_actions")
    return spaces.Box(-np.inf, np.inf, (int(num_actions),), np.float32)


def _is_batched(space: Any, num_envs: int) -> bool:
    """Returns whether a space, if there is one, is that of the vectors of all envs, [N, ...], or has one."""
    if isinstance(parts := getattr(space, "spaces", None), Mapping):
        return any(_is_batched(part, num_envs) for part in parts.values())
    shape = tuple(getattr(space, "shape", None) or ())
    return len(shape) > 1 and shape[0] == num_envs


def _of_one(space: spaces.Space[Any], num_envs: int) -> spaces.Space[Any]:
    """Returns the space of one env if a space is that of all of them, as `batch_space` makes it; else the
    same space, such as a MultiDiscrete whose entries are parts of one action."""
    if isinstance(space, spaces.Box) and len(space.shape) > 1 and len(space.low) == num_envs:
        return spaces.Box(space.low[0], space.high[0], space.shape[1:], space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete) and space.shape == (num_envs,):
        first = spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]))
        return first if space == gym.vector.utils.batch_space(first, num_envs) else space
    return space


def _converted(space: Any) -> spaces.Space[Any]:
    """Returns a space of Gymnasium: of one of gym, or of any object with shape, low and high."""
    try:
        return to_gymnasium(space)
    except UnsupportedSpace:
        if not all(hasattr(space, name) for name in ("shape", "low", "high")):
            raise
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high)
    )
    return spaces.Box(low, high, tuple(space.shape), np.float32)
