"""Envs with the API of the old gym package, which Gymnasium has replaced: `step` returns 4 values."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sample_factory.envs.abilities import HoldsEnv, LimitsEpisodes, find_ability
from sample_factory.envs.contract import check_observation, check_reset_parameters, check_step, describe
from sample_factory.envs.protocol import EnvContractError
from sample_factory.spaces.observations import UnsupportedSpace

CUT_BY_TIME = "TimeLimit.truncated"  # what the old package's TimeLimit adds to the info of the last step
OLD_API_NOTE = (
    "%s has the API of the old gym package and is adapted: `done` counts as truncated where the info has "
    f"{CUT_BY_TIME!r}, else as terminated"
)


def is_old_env(env: Any) -> bool:
    """Returns whether an object can be an env of the old API, without importing gym.

    It need not inherit from anything, as in version 1: spaces, `reset` and `step` are enough.
    """
    if isinstance(env, (gym.Env, gym.vector.VectorEnv)):
        return False
    return all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step"))


def accepts_seed(env: Any) -> bool:
    """Returns whether `reset(seed=...)` reaches the env through all wrappers of Gymnasium or of gym."""
    if isinstance(env, gym.Env):
        try:
            check_reset_parameters(env)
        except EnvContractError:
            return False
        return True
    while _is_old_wrapper(env):  # it passes on any argument, even one that its env refuses
        env = env.env
    return _takes(getattr(env, "reset", None), "seed", or_any=True)


def is_observation_alone(space: spaces.Space[Any], returned: Any) -> bool:
    """Returns whether `reset` returned only an observation of `space`, as in the old API, and not
    (observation, info)."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        return False
    try:
        check_observation(space, returned)
    except EnvContractError:
        return False
    return True


class OldGymEnv(gym.Env[Any, Any], HoldsEnv, LimitsEpisodes):
    """Wraps a single-agent env with the old API of gym as a Gymnasium env. Also takes envs of later versions
    of gym, in which `reset` returns an info already."""

    def __init__(self, env: Any, has_old_reset: bool = False):
        """Wraps `env`. has_old_reset: whether its `reset` is known to return the observation alone."""
        if isinstance(env, gym.Wrapper):
            check_reset_parameters(env)  # Gymnasium's wrappers always pass a seed on
        self.env = env
        self.observation_space = to_gymnasium(env.observation_space)
        self.action_space = to_gymnasium(env.action_space)
        self.metadata = drawing(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self.has_old_api = has_old_reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        returned = reset_with_seed(self.env, seed)
        self.has_old_api = is_observation_alone(self.observation_space, returned)
        if self.has_old_api:
            return returned, {}
        if isinstance(self.env, gym.Env):
            check_reset_parameters(self.env)  # raises: all but the parameters follows Gymnasium
        return returned  # type: ignore[no-any-return]  # the adapter checks it

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        returned = self.env.step(action)
        if not self.has_old_api:
            check_step(returned)
            return returned  # type: ignore[no-any-return]
        check_old_step(returned)
        observation, reward, done, info = returned
        is_cut = bool(done) and isinstance(info, Mapping) and bool(info.get(CUT_BY_TIME, False))
        return observation, reward, bool(done) and not is_cut, is_cut, info

    def render(self) -> Any:
        return render_old(self.env, has_mode=self.render_mode is not None)

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def max_episode_steps(self) -> int | None:
        spec = getattr(self.env, "spec", None)
        limit: int | None = None if spec is None else spec.max_episode_steps
        return find_ability(self.env, LimitsEpisodes).max_episode_steps() if limit is None else limit


def are_infos(value: Any) -> bool:
    """Returns whether a value is a list or tuple of dicts, and so holds the infos of several agents."""
    return isinstance(value, (list, tuple)) and all(isinstance(info, Mapping) for info in value)


def with_both_ends(observations: Any, rewards: Any, dones: Any, infos: Any) -> tuple[Any, ...]:
    """Converts the 4 values that `step` of a multi-agent env of version 1 returned to the 5 values of
    Gymnasium: an agent that is done was truncated if its info says so by CUT_BY_TIME, else it has terminated.
    Raises EnvContractError if `dones` or `infos` is no list."""
    if not isinstance(dones, (list, tuple, np.ndarray)) or not are_infos(infos):
        raise EnvContractError(
            f"step returned 4 values, {describe(dones)} for done and {describe(infos)} for the info; each "
            "should be a list with an entry per agent, of an info a dict. Otherwise it should return 5: "
            "observation, reward, terminated, truncated, info"
        )
    are_cut = [bool(done) and bool(info.get(CUT_BY_TIME, False)) for done, info in zip(dones, infos)]
    terminated = [bool(done) and not is_cut for done, is_cut in zip(dones, are_cut)]
    return observations, rewards, terminated, are_cut, infos


def takes_seed(env: Any) -> bool:
    """Returns whether `reset_with_seed` can pass a seed on: the env accepts it in `reset`, or has a method
    `seed`."""
    return accepts_seed(env) or callable(getattr(env, "seed", None))


def reset_with_seed(env: Any, seed: int | None) -> Any:
    """Resets an env and returns what its `reset` returned; for a simulator without `reset`, calls and returns
    `get_observations`.

    The seed is passed as `reset(seed=...)`, else by calling `seed(...)` first. An env that accepts a seed in
    neither way is reset without a seed.
    """
    if accepts_seed(env):
        return env.reset(seed=seed)
    if seed is not None and takes_seed(env):  # a batched simulator may have a number of this name
        env.seed(seed)
    return env.reset() if hasattr(env, "reset") else env.get_observations()


def render_old(env: Any, has_mode: bool) -> Any:
    """Returns a picture of an env of gym. has_mode: whether the env has a `render_mode`, so that `render`
    takes no argument."""
    unwrapped = env
    while _is_old_wrapper(unwrapped):
        unwrapped = unwrapped.env
    return env.render() if has_mode or not _takes(unwrapped.render, "mode") else env.render(mode="rgb_array")


def drawing(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the render modes and the frame rate from the metadata of a gym env, under Gymnasium's keys."""
    return {
        "render_modes": metadata.get("render_modes") or metadata.get("render.modes") or [],
        "render_fps": metadata.get("render_fps") or metadata.get("video.frames_per_second"),
    }


def check_old_step(returned: Any) -> None:
    """Raises EnvContractError unless `step` returned 4 values, as it should in an env whose `reset` returns
    the observation alone."""
    if isinstance(returned, (tuple, list)) and len(returned) == 4:
        return
    check_step(returned)  # raises unless there are 5
    raise EnvContractError(
        "reset returned the observation alone; it should return two values, (observation, info), since step "
        "returns 5"
    )


def to_gymnasium(space: Any) -> spaces.Space[Any]:
    """Converts a space of the old gym package to Gymnasium. A space of Gymnasium is returned unchanged; any
    other object with shape, low and high, as mjlab has them, becomes a Box.

    Spaces of gym are recognised by the names of their classes, so that gym is not imported. Raises
    UnsupportedSpace for anything else.
    """
    if isinstance(space, spaces.Space):
        return space
    for base in type(space).__mro__:
        if base.__module__.partition(".")[0] == "gym" and base.__name__ in _CONVERSIONS:
            return _CONVERSIONS[base.__name__](space)
    if all(hasattr(space, name) for name in ("shape", "low", "high")):
        low, high = (np.broadcast_to(np.float32(bound), space.shape) for bound in (space.low, space.high))
        return spaces.Box(low, high, tuple(space.shape), np.float32)
    raise UnsupportedSpace(
        f"{describe(space)} is no space of Gymnasium or gym; supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, Dict and Tuple"
    )


_CONVERSIONS: Mapping[str, Callable[[Any], spaces.Space[Any]]] = {
    "Box": lambda space: spaces.Box(space.low, space.high, space.shape, space.dtype.type),
    # Early versions have no `start`.
    "Discrete": lambda space: spaces.Discrete(int(space.n), start=int(vars(space).get("start", 0))),
    "MultiDiscrete": lambda space: spaces.MultiDiscrete(space.nvec),
    "MultiBinary": lambda space: spaces.MultiBinary(space.n),
    "Tuple": lambda space: spaces.Tuple([to_gymnasium(part) for part in space.spaces]),
    "Dict": lambda space: spaces.Dict({key: to_gymnasium(part) for key, part in space.spaces.items()}),
}


def _is_old_wrapper(env: Any) -> bool:
    """Returns whether the env is a Wrapper of the old gym package, without importing gym."""
    old_gym = sys.modules.get("gym")
    return old_gym is not None and isinstance(env, vars(old_gym)["Wrapper"])


def _takes(function: Any, parameter: str, or_any: bool = False) -> bool:
    """Returns whether a function has a parameter of this name. or_any: whether **kwargs counts as well."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions of C extensions have no signature
        return False
    takes_any = or_any and any(known.kind is known.VAR_KEYWORD for known in parameters.values())
    return parameter in parameters or takes_any
