"""Batched simulators: robotics envs that step thousands of copies in one call and are no Gymnasium VectorEnv.

Brax, MuJoCo Playground, mjlab, Isaac Lab, Isaac Gym, and everything with the VecEnv of rsl_rl; BATCHED.md has
what each of them returns.
"""

import sys
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.envs import contract
from sample_factory.envs.abilities import HoldsEnv, LimitsEpisodes, SpreadsEpisodes
from sample_factory.envs.adapters.list_style import v1_attribute
from sample_factory.envs.adapters.old_gym import (
    CUT_BY_TIME,
    accepts_seed,
    render_old,
    reset_with_seed,
    to_gymnasium,
)
from sample_factory.envs.adapters.tensors import Crossing, is_tensor, to_host
from sample_factory.envs.adapters.vector_env import FINAL_KEYS, MODES, declared_mode
from sample_factory.envs.end_infos import EXTRA_STATS, to_float
from sample_factory.envs.protocol import EnvContractError
from sample_factory.spaces.observations import UnsupportedSpace

# Keys of infos: which copies were cut by a time limit, [N]. rsl_rl and Isaac Gym; Brax; old gym.
TIME_OUTS = ("time_outs", "truncation", CUT_BY_TIME)
# Keys of infos: means over the episodes that ended in this step.
LOGS = ("log", "episode")
# Attributes: steps of the current episode of each copy, [N]. rsl_rl, Isaac Lab and mjlab; Isaac Gym.
AGES = ("episode_length_buf", "progress_buf")


def is_simulator(env: Any) -> bool:
    """Returns whether an object steps `num_envs` copies in one call, without being a Gymnasium VectorEnv."""
    num_envs = _find(env, "num_envs")
    if not isinstance(num_envs, (int, np.integer)) or not hasattr(env, "step"):
        return False
    if isinstance(env, gym.Env):
        # ManiSkill's single env has these attributes too, but its observations are not batched.
        is_batched = num_envs > 1 and _find(env, "single_action_space") is not None
        return is_batched or bool(_find(env, "is_vector_env"))
    return hasattr(env, "reset") or hasattr(env, "get_observations")


def runs_on_device(env: Any) -> bool:
    """Returns whether a user's env is a batched simulator: also a VectorEnv that says on which device it
    runs, as ManiSkill's does."""
    if isinstance(env, SimulatorVectorEnv):
        return True
    return isinstance(env, gym.vector.VectorEnv) and _find(env, "device") is not None


class SimulatorVectorEnv(gym.vector.VectorEnv[Any, Any, Any], HoldsEnv, LimitsEpisodes, SpreadsEpisodes):
    """A batched simulator as a Gymnasium VectorEnv with arrays of NumPy.

    - `step` may return 4 values, where `dones` include the episodes that a time limit has cut; these are then
      in the infos under one of TIME_OUTS. Rewards and ends are numbers of any dtype, [N] or [N, 1].
    - `reset` is called once, at the start; without it, `get_observations`. A simulator resets copies itself,
      in the step that ends their episode, or in the next one. Which it does is known from AGES. Without them,
      a simulator of 4 values is taken to do the former, as all that are known do; one of 5 values has to say
      it as a VectorEnv does.
    - Spaces are those it has; otherwise they follow from its first observations and from `num_actions`.
    """

    def __init__(self, env: Any):
        self.env = env
        self.num_envs = int(_find(env, "num_envs"))
        declared = dict(_find(env, "metadata") or {})
        self.metadata = {
            "render_modes": declared.get("render_modes") or declared.get("render.modes") or [],
            "render_fps": declared.get("render_fps") or declared.get("video.frames_per_second"),
            "autoreset_mode": declared.get("autoreset_mode"),
        }
        self.metadata["autoreset_mode"] = declared_mode(self)
        self.render_mode = _find(env, "render_mode")
        self._crossing = Crossing()
        self._first: Any = None  # observations of a reset that `reset` has not returned yet
        self._spread_seed: int | None = None
        self._waiting: np.ndarray | None = None  # NEXT_STEP: copies that the coming step resets, [N] bool
        self.single_observation_space = self._observation_space()
        self.single_action_space = _action_space(env, self.num_envs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)

    def _observation_space(self) -> spaces.Space[Any]:
        declared = _find(self.env, "single_observation_space")
        if isinstance(declared, spaces.Space):
            return declared
        self._first = self._begin(None)
        return _space_of(self._first, self.num_envs, "obs")

    def _begin(self, seed: int | None) -> Any:
        """Resets the simulator; returns its observations on the host."""
        if hasattr(self.env, "reset"):
            returned = reset_with_seed(self.env, seed)
        else:
            if seed is not None and self._takes_seed:
                self.env.seed(seed)
            returned = self.env.get_observations()
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
            returned = returned[0]
        return self._crossing.to_host(returned)

    @property
    def _takes_seed(self) -> bool:
        takes = hasattr(self.env, "reset") and accepts_seed(self.env)
        return takes or callable(v1_attribute(self.env, "seed", None))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if options is not None:
            raise EnvContractError(f"{_name(self.env)} should reset copies itself, in `step`")
        observations, self._first = self._first, None
        if observations is None or (seed is not None and self._takes_seed):
            observations = self._begin(seed)
        if self._spread_seed is not None:
            self._spread(self._spread_seed)
        return observations, {}

    def spread_episodes(self, seed: int) -> None:
        self._spread_seed = seed

    def _spread(self, seed: int) -> None:
        """Lets each copy start at a random step of its first episode, as rsl_rl does, so that episodes do not
        all end together. Does nothing if the simulator does not count the steps of episodes."""
        ages, limit = _find(self.env, AGES[0]), self.max_episode_steps()
        if is_tensor(ages) and limit is not None:
            drawn = np.random.default_rng(seed).integers(limit, size=self.num_envs)
            ages[:] = ages.new_tensor(drawn)

    def max_episode_steps(self) -> int | None:
        limit = _find(self.env, "max_episode_length")
        return None if limit is None or np.size(to_host(limit)) != 1 else int(limit)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        returned = self.env.step(self._crossing.to_env(actions))
        if not isinstance(returned, (tuple, list)) or len(returned) not in (4, 5):
            contract.check_step(returned, "each with an entry per copy; or 4, with one `done` for both ends")
        *arrays, infos = returned
        contract.check_info(infos, "step")
        observations, rewards, *ends = self._crossing.to_host(tuple(arrays))
        rewards, *ends = (self._of_copies(value) for value in (rewards, *ends))
        if not all(((end == 0) | (end == 1)).all() for end in ends):
            raise EnvContractError(
                f"{_name(self.env)}: the {len(returned)} values of step should be observations, rewards, "
                "ends of 0 and 1 (one array, or terminated and truncated), and infos"
            )
        terminated = ends[0] != 0
        truncated = ends[1] != 0 if len(ends) == 2 else np.zeros_like(terminated)
        if self._waiting is not None:
            rewards = self._without_resets(rewards, self._waiting)
            self._waiting = None
        ended = terminated | truncated
        if not ended.any():
            return observations, rewards, terminated, truncated, {}
        if self.metadata["autoreset_mode"] is None:
            self._recognise(ended, infos, num_values=len(returned))
        if self.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP:
            self._waiting = ended
        is_cut = next((self._of_copies(to_host(infos[key])) for key in TIME_OUTS if key in infos), None)
        if is_cut is not None:
            terminated = terminated & (is_cut == 0)
            truncated = ended & ~terminated
        return observations, rewards, terminated, truncated, self._end_infos(infos)

    def _of_copies(self, values: Any) -> np.ndarray:
        """Returns an array [N]. Raises EnvContractError unless there is a number for each copy."""
        array = np.asarray(values)
        if array.shape not in ((self.num_envs,), (self.num_envs, 1)) or array.dtype.kind not in "biuf":
            raise EnvContractError(
                f"step returned {contract.describe(array)}; it should have a number for each of the "
                f"{self.num_envs} copies"
            )
        return array.reshape(self.num_envs)

    def _ages(self) -> np.ndarray | None:
        found = (_find(self.env, name) for name in AGES)
        ages = next((to_host(value) for value in found if value is not None), None)
        return None if ages is None else self._of_copies(ages)

    def _recognise(self, ended: np.ndarray, infos: Mapping[str, Any], num_values: int) -> None:
        """Sets the autoreset mode by what the first end of an episode shows.

        Raises EnvContractError if it shows nothing: a wrong guess would lose the first step of each episode.
        """
        ages = self._ages()
        if ages is not None and ages[ended].any():
            self.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
        elif ages is not None or num_values == 4 or FINAL_KEYS & infos.keys():
            self.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP
        else:
            raise EnvContractError(
                f"{_name(self.env)} does not say when it resets a copy whose episode has ended; {MODES}"
            )

    def _without_resets(self, rewards: np.ndarray, waiting: np.ndarray) -> np.ndarray:
        """Returns rewards with 0 for the copies that this step has reset.

        waiting: these copies, [N] bool. Raises EnvContractError if it has not.
        """
        ages = self._ages()
        if ages is None or not ages[waiting].any():
            return np.where(waiting, 0, rewards)
        raise EnvContractError(
            f"{_name(self.env)} has reset no copy in the step that ended its episode, nor in the next one; "
            "a simulator should do that itself"
        )

    def _end_infos(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the infos with one number or text for each copy, or for all. Numbers for all among LOGS are
        further statistics of the episodes."""
        kept = self._kept(infos)
        for log in LOGS:
            entries = kept.pop(log, {})
            if isinstance(entries, Mapping):
                of_copies = {key: value for key, value in entries.items() if np.ndim(value)}
                means = {key: value for key, value in entries.items() if isinstance(value, float)}
                kept |= {log: of_copies} if of_copies else {}
                kept |= {EXTRA_STATS: {**means, **kept.get(EXTRA_STATS, {})}} if means else {}
        return kept

    def _kept(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in infos.items():
            if isinstance(value, Mapping):
                kept[key] = self._kept(value)
            elif isinstance(value, str):
                kept[key] = value
            elif np.ndim(value) == 0 and (number := to_float(value)) is not None:
                kept[key] = number
            elif np.shape(value) in ((self.num_envs,), (self.num_envs, 1)):
                kept[key] = np.asarray(to_host(value)).reshape(self.num_envs)
        return kept

    def render(self) -> Any:
        """Returns pictures of copies, or one of all, [1 or N, height, width, 3]; None if it draws none."""
        if not hasattr(self.env, "render"):
            return None
        drawn = to_host(render_old(self.env, has_mode=self.render_mode is not None))
        return drawn if drawn is None or np.ndim(drawn) == 4 else [drawn]

    def close_extras(self, **kwargs: Any) -> None:
        gym_of_old = sys.modules.get("gym")
        own = v1_attribute(self.env, "unwrapped", self.env)
        # Brax does not call the constructor of gym's VectorEnv, whose `close` then raises AttributeError.
        is_half_made = gym_of_old is not None and isinstance(own, gym_of_old.vector.VectorEnv)
        if hasattr(self.env, "close") and not (is_half_made and "closed" not in vars(own)):
            self.env.close()


def _name(env: Any) -> str:
    return type(_find(env, "unwrapped") or env).__name__


def _find(env: Any, name: str) -> Any:
    """Returns an attribute of an env, or of the env in its wrappers; None if neither has it."""
    found = v1_attribute(env, name, None)
    return v1_attribute(v1_attribute(env, "unwrapped", env), name, None) if found is None else found


def _space_of(observations: Any, num_envs: int, key: str) -> spaces.Space[Any]:
    """Returns the space of one copy by the observations of all of them, on the host. key: for an error."""
    if isinstance(observations, Mapping):
        own = {name: _space_of(value, num_envs, str(name)) for name, value in observations.items()}
        return spaces.Dict(own)
    array = np.asarray(observations)
    if array.ndim == 0 or len(array) != num_envs or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"observation {key!r} is {contract.describe(array)}; it should have an entry for each of the "
            f"{num_envs} copies"
        )
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)


def _action_space(env: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of an action of one copy. Raises UnsupportedSpace if it is not known."""
    single = _find(env, "single_action_space")
    if single is not None:
        return _converted(single)
    num_actions = _find(env, "num_actions")
    declared = _find(env, "action_space")
    if declared is None:
        if num_actions is None:
            raise UnsupportedSpace(f"{_name(env)} has neither an action_space nor num_actions")
        return spaces.Box(-np.inf, np.inf, (int(num_actions),), np.float32)
    space = _converted(declared)
    if isinstance(space, spaces.Box) and len(space.shape) > 1 and len(space.low) == num_envs:
        return spaces.Box(space.low[0], space.high[0], space.shape[1:], space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete) and space.shape == (num_envs,) and num_actions is None:
        first = spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]))
        # Otherwise its entries are parts of one action.
        return first if space == gym.vector.utils.batch_space(first, num_envs) else space
    return space


def _converted(space: Any) -> spaces.Space[Any]:
    """Returns a space of Gymnasium: of one of gym, or of any object with shape, low and high."""
    if not isinstance(space, spaces.Space) and all(hasattr(space, name) for name in ("shape", "low", "high")):
        low, high = (
            np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, tuple(space.shape), np.float32)
    return to_gymnasium(space)
