"""What a batched simulator declares and returns: attributes, spaces, numbers by env, and infos."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.envs import contract
from sample_factory.envs.adapters.list_style import v1_attribute
from sample_factory.envs.adapters.old_gym import to_gymnasium
from sample_factory.envs.adapters.tensors import to_host
from sample_factory.envs.conventions import convention_of, name_of
from sample_factory.envs.end_infos import EXTRA_STATS, leaves
from sample_factory.envs.protocol import EnvContractError
from sample_factory.spaces.observations import UnsupportedSpace

# Keys of infos: statistics of the episodes that ended in this step. rsl_rl; its early versions; Brax.
LOGS = ("log", "episode", "episode_metrics")
SUMS = ("r", "l", "t")  # of an episode, by Gymnasium's RecordEpisodeStatistics


def find(env: Any, name: str) -> Any:
    """Returns an attribute of an env, or of the env inside its wrappers; None if neither has the
    attribute."""
    found = v1_attribute(env, name, None)
    return v1_attribute(v1_attribute(env, "unwrapped", env), name, None) if found is None else found


def observation_space(env: Any, observations: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of the observation of one env. Raises EnvContractError if the observations do not
    have an entry for each env.

    observations: the first observations of all envs, arrays [N, ...] or a dict of arrays, in host memory.
    """
    declared = find(env, "single_observation_space")
    declared = find(env, "observation_space") if declared is None else declared
    return _space_of(observations, declared, num_envs, "obs")


def _space_of(observations: Any, declared: Any, num_envs: int, key: str) -> spaces.Space[Any]:
    """Returns the observation space of one env, inferred from the observations of all envs.

    declared: space that the simulator declares, or None; only its discrete parts are used, as other bounds
        follow from the dtype. key: name of the observation in an error.
    """
    if isinstance(observations, Mapping):
        known = declared.spaces if isinstance(declared, spaces.Dict) else {}
        return spaces.Dict(
            {
                name: _space_of(value, known.get(name), num_envs, str(name))
                for name, value in observations.items()
            }
        )
    array = np.asarray(() if isinstance(observations, (tuple, list)) else observations)
    if array.ndim == 0 or len(array) != num_envs or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"observation {key!r} is {contract.describe(observations)}; it should be an array with an entry "
            f"for each of the {num_envs} envs, or a dict of these"
        )
    if isinstance(declared, (spaces.Discrete, spaces.MultiDiscrete)):
        if array.dtype.kind == "f" or array[0].size != np.size(declared.start):
            raise EnvContractError(
                f"observation {key!r} is {contract.describe(array)} of {array.dtype} for {num_envs} envs, "
                f"but its space is {declared}; set single_observation_space to that of one env"
            )
        return declared
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)


def action_space(env: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of an action of one env, by single_action_space, action_space or num_actions. Raises
    UnsupportedSpace without any of these, or if action_space may be for all envs together."""
    single, declared = find(env, "single_action_space"), find(env, "action_space")
    if single is not None:
        return to_gymnasium(single)
    if declared is None:
        num_actions = find(env, "num_actions")
        if num_actions is None:
            raise UnsupportedSpace(f"{name_of(env)} should have a single_action_space, or num_actions")
        return spaces.Box(-np.inf, np.inf, (int(num_actions),), np.float32)
    space = to_gymnasium(declared)
    if isinstance(space, spaces.Box) and convention_of(env).batches_action_space:
        return spaces.Box(space.low[0], space.high[0], space.shape[1:], space.dtype.type)
    shape = space.shape or ()
    has_rows = len(shape) > 1 or isinstance(space, spaces.MultiDiscrete)
    if num_envs > 1 and has_rows and shape[0] == num_envs:
        raise UnsupportedSpace(
            f"{name_of(env)} has the action_space {space}, which could be that of all {num_envs} envs: set "
            "single_action_space to that of one env"
        )
    return space


def numbers_by_env(name: str, values: Any, num_envs: int) -> np.ndarray:
    """Converts one number for each env, [N] or [N, 1] on any device, to a NumPy array [N]. Raises
    EnvContractError for any other shape or dtype. name: what an error calls the values."""
    array = np.asarray(to_host(values))
    if array.shape not in ((num_envs,), (num_envs, 1)) or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"{name} is {contract.describe(array)}; it should have a number for each of the {num_envs} envs"
        )
    return array.reshape(num_envs)


def flags_by_env(name: str, values: Any, num_envs: int) -> np.ndarray:
    """Converts one flag for each env, numbers 0 and 1 of shape [N] or [N, 1], to an array [N] bool. Raises
    EnvContractError for other numbers or shapes. name: what an error calls the values."""
    array: np.ndarray = numbers_by_env(name, values, num_envs)
    if array.dtype == bool:
        return array
    if not ((array == 0) | (array == 1)).all():
        raise EnvContractError(
            f"{name} of step has other numbers than 0 and 1; step should return observations, rewards, ends "
            "(one array `done`, or terminated and truncated), and infos"
        )
    flags: np.ndarray = array != 0
    return flags


def infos_of_end(infos: Mapping[str, Any], num_envs: int) -> dict[str, Any]:
    """Returns the entries of a step's infos that are kept for the episodes that end in the step, in host
    memory: texts, numbers, arrays [N], and dicts of these. Large arrays, such as observations, are left out.

    Entries of the dicts LOGS, and entries with a slash in their name (craftax's achievements), become
    statistics of episodes under EXTRA_STATS. An array of another shape than [N] counts as its mean, as in
    rsl_rl's log.
    """
    shapes = ((), (1,), (num_envs,), (num_envs, 1))  # others, as observations, would take long to the host
    small = {
        path: value
        for path, value in leaves(infos)
        if isinstance(value, (str, bool, int, float, np.generic))
        # Random keys of JAX do not have the method.
        or (hasattr(value, "__dlpack__") and (path[0] in LOGS or tuple(value.shape) in shapes))
    }
    kept: dict[str, Any] = {}
    for (head, *rest), value in to_host(small).items():
        is_stat = "/" in head or (head in LOGS and rest and rest[0] not in SUMS)
        number = value if isinstance(value, str) else _number_by_env(value, num_envs)
        if number is None or (is_stat and isinstance(number, str)):
            continue
        if is_stat:
            head, rest = EXTRA_STATS, rest or [head]
        if rest:
            kept.setdefault(head, {})["/".join(map(str, rest))] = number
        else:
            kept[head] = number
    return kept


def _number_by_env(value: Any, num_envs: int) -> Any:
    """Converts a numeric value of shape [N] or [N, 1] to an array [N], and a numeric value of any other shape
    to its mean, a float. Returns None if the value is empty or not numeric."""
    array = np.asarray(value)
    if not array.size or array.dtype.kind not in "biuf":
        return None
    return array.reshape(num_envs) if array.shape in ((num_envs,), (num_envs, 1)) else float(array.mean())
