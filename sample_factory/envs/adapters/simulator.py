"""Batched simulators: robotics envs that step thousands of envs in one call and are no Gymnasium VectorEnv.

Brax, MuJoCo Playground, mjlab, Isaac Lab, Isaac Gym, and everything with the VecEnv of rsl_rl; BATCHED.md has
what each of them returns.
"""

import functools
import inspect
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
    is_old_env,
    render_old,
    reset_with_seed,
    takes_seed,
    to_gymnasium,
)
from sample_factory.envs.adapters.tensors import Crossing, fill, to_host
from sample_factory.envs.adapters.vector_env import FINAL_KEYS, MODES_OF_STEP, declared_mode, recognised_mode
from sample_factory.envs.end_infos import EXTRA_STATS
from sample_factory.envs.protocol import EnvContractError, named_faults
from sample_factory.runtime.log import log
from sample_factory.spaces.observations import UnsupportedSpace

# Keys of infos: which envs were cut by a time limit, [N]. rsl_rl and Isaac Gym; Brax; old gym.
TIME_OUTS = ("time_outs", "truncation", CUT_BY_TIME)
# Keys of infos: statistics of the episodes that ended in this step.
LOGS = ("log", "episode")
SUMS = ("r", "l", "t")  # of an episode, by Gymnasium's RecordEpisodeStatistics
# Attributes: steps of the current episode of each env, [N]. rsl_rl, Isaac Lab and mjlab; Isaac Gym.
AGES = ("episode_length_buf", "progress_buf")
# Attributes of simulators that return the critic's observations as a second value: rsl_rl 1.
PRIVILEGED = ("get_privileged_observations", "num_privileged_obs")


def is_simulator(env: Any) -> bool:
    """Returns whether an env is a batched simulator, which steps `num_envs` envs in one call. Of VectorEnvs,
    these are the ones that say on which device they run, as ManiSkill's does.

    An object with num_envs = 1 that could also be a single env of the old API is reset once; it is a
    simulator if its observations have a first dimension of 1.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return isinstance(env, SimulatorVectorEnv) or _find(env, "device") is not None
    num_envs = _find(env, "num_envs")
    if not isinstance(num_envs, (int, np.integer)) or not hasattr(env, "step"):
        return False
    if isinstance(env, gym.Env) and not _find(env, "is_vector_env"):
        if num_envs > 1:
            return _find(env, "single_action_space") is not None
        # ManiSkill's env for a CPU has these attributes, too, but its observations are not batched.
        single = _find(env, "single_observation_space")
        is_space = isinstance(single, spaces.Space)
        return is_space and env.observation_space == gym.vector.utils.batch_space(single, 1)
    if num_envs == 1 and is_old_env(env):
        returned = env.reset()
        try:
            _space_of(to_host(returned[0] if isinstance(returned, tuple) else returned), None, 1, "")
        except EnvContractError:
            return False
    return hasattr(env, "reset") or hasattr(env, "get_observations")


@functools.cache  # once in a process
def _note(text: str) -> None:
    log.info(text)


class SimulatorVectorEnv(gym.vector.VectorEnv[Any, Any, Any], HoldsEnv, LimitsEpisodes, SpreadsEpisodes):
    """A batched simulator as a Gymnasium VectorEnv with arrays of NumPy.

    - `step` may return 4 values, where `done` includes the episodes that a time limit has cut; these are then
      in the infos under one of TIME_OUTS. Beside 5 values, these win over `terminated`. Rewards and ends are
      numbers of any dtype, [N] or [N, 1].
    - The observations of the critic may be a group of the others. If they are in the infos (rsl_rl 2) or are
      the second value of 5 (rsl_rl 1, see PRIVILEGED), the groups get the names "policy" and "critic".
    - `reset` is called at the start only; without it, `get_observations`. A simulator resets envs itself, in
      the step that ends their episode, or in the next one. Which it does is known from AGES. Without them, a
      simulator of 4 values is taken to do the former, as all that are known do; one of 5 values has to say it
      as a VectorEnv does.
    - The observation space is the declared one, where the first observations fit it; the rest follows from
      these. Without an action space, an action has `num_actions` numbers.
    """

    def __init__(self, env: Any):
        self.env = env
        self.num_envs = int(_find(env, "num_envs"))
        self._shapes = ((self.num_envs,), (self.num_envs, 1))  # of numbers by env
        declared = dict(_find(env, "metadata") or {})
        self.metadata = {
            "render_modes": declared.get("render_modes") or declared.get("render.modes") or [],
            "render_fps": declared.get("render_fps") or declared.get("video.frames_per_second"),
            "autoreset_mode": declared.get("autoreset_mode"),
        }
        self.metadata["autoreset_mode"] = declared_mode(self)
        self.render_mode = _find(env, "render_mode")
        self._crossing = Crossing()
        self._is_privileged = any(_find(env, name) is not None for name in PRIVILEGED)
        self._spread_seed: int | None = None
        self._is_proven = self.metadata["autoreset_mode"] is not None  # that it resets as the mode says
        self._waiting = np.zeros(self.num_envs, bool)  # NEXT_STEP: envs that the coming step resets
        with named_faults(_name(env), "reset"):
            self._first: Any = self._begin(None)  # observations that `reset` has not returned yet
        self.single_observation_space = _observation_space(env, self._first, self.num_envs)
        self.single_action_space = _action_space(env, self.num_envs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)

    def _begin(self, seed: int | None) -> Any:
        """Resets the simulator; returns its observations on the host."""
        env = self.env
        observations, beside = self._pair(reset_with_seed(env, seed))
        if beside is None and not isinstance(observations, Mapping):
            if hasattr(env, "reset") and _takes_nothing(getattr(env, "get_observations", None)):
                # It may reset the simulator again, as early versions of MuJoCo Playground do.
                again, beside = self._pair(env.get_observations())
                observations = observations if beside is None else again
            if beside is None and hasattr(env, "get_privileged_observations"):
                beside = env.get_privileged_observations()
        return self._crossing.to_host((_with_critic(observations, beside),))[0]

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        """Returns observations and what is beside them: infos, those of the critic, or None."""
        is_pair = isinstance(returned, tuple) and len(returned) == 2
        is_pair = is_pair and (self._is_privileged or isinstance(returned[1], Mapping | None))
        return returned if is_pair else (returned, None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if options is not None:
            raise EnvContractError(f"{_name(self.env)} should reset envs itself, in `step`; {MODES_OF_STEP}")
        observations, self._first = self._first, None
        if observations is None or (seed is not None and takes_seed(self.env)):
            observations = self._begin(seed)
        if self._spread_seed is not None:
            self._spread(self._spread_seed)
        self._waiting = self._unbegun()
        return observations, {"is_active": ~self._waiting} if self._waiting.any() else {}

    def _unbegun(self) -> np.ndarray:
        """Returns the envs whose first episode begins in the first step, [N] bool: Isaac Gym's `reset` resets
        nothing, and its `step` resets the envs in `reset_buf`."""
        due = _find(self.env, "reset_buf")
        is_isaac_gym = due is not None and _find(self.env, AGES[1]) is not None
        if not is_isaac_gym or self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP:
            return np.zeros(self.num_envs, bool)
        unbegun: np.ndarray = self._by_env("reset_buf", due) != 0
        return unbegun

    def spread_episodes(self, seed: int) -> None:
        self._spread_seed = seed

    def _spread(self, seed: int) -> None:
        """Lets each env start at a random step of its first episode, as rsl_rl does, so that episodes do not
        all end together. Does nothing if the simulator does not count the steps of episodes."""
        ages, limit = _find(self.env, AGES[0]), self.max_episode_steps()
        if ages is not None and limit is not None:
            fill(ages, np.random.default_rng(seed).integers(limit, size=self.num_envs))

    def max_episode_steps(self) -> int | None:
        limit = np.asarray(to_host(_find(self.env, "max_episode_length")))
        is_one = limit.size == 1 and limit.dtype.kind in "iuf"  # rsl_rl allows a limit for each env
        return int(limit.item()) if is_one and 1 <= limit.item() < np.inf else None

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        ages = None if self._is_proven else self._ages()
        returned = self.env.step(self._crossing.to_env(actions))
        if not isinstance(returned, (tuple, list)) or len(returned) not in (4, 5):
            contract.check_step(returned, "each with an entry per env; or 4, with one `done` for both ends")
        observations, *values, infos = returned
        contract.check_info(infos, "step")
        beside = infos
        is_by_env = len(values) == 3 and _shape(values[0]) in self._shapes
        if len(values) == 3 and (values[0] is None or (self._is_privileged and not is_by_env)):
            beside, *values = values
        observations, *values = self._crossing.to_host((_with_critic(observations, beside), *values))
        self._check_groups(observations)
        names = ("rewards", "done") if len(values) == 2 else ("rewards", "terminated", "truncated")
        rewards, *ends = (self._by_env(name, value) for name, value in zip(names, values))
        if not all(((end == 0) | (end == 1)).all() for end in ends):
            raise EnvContractError(
                f"{_name(self.env)}: the {len(returned)} values of step should be observations, rewards, "
                "ends of 0 and 1 (one array, or terminated and truncated), and infos"
            )
        terminated = ends[0] != 0
        truncated = ends[1] != 0 if len(ends) == 2 else np.zeros_like(terminated)
        if self._waiting.any():
            rewards = np.where(self._waiting, 0, rewards)
            self._check_resets(ages)
        ended = self._waiting = terminated | truncated
        if not ended.any():
            active = {"is_active": infos["is_active"]} if "is_active" in infos else {}
            return observations, rewards, terminated, truncated, self._kept(active)
        if self.metadata["autoreset_mode"] is None:
            self._recognise(ended, ages, infos, len(ends))
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP:
            self._waiting = np.zeros_like(ended)
        end_infos = self._end_infos(infos)
        key = next((key for key in TIME_OUTS if infos.get(key) is not None), None)
        if key is not None:
            is_kept = isinstance(end_infos.get(key), np.ndarray)
            is_cut = self._by_env(f"infos[{key!r}]", (end_infos if is_kept else infos)[key])
            terminated = terminated & (is_cut == 0)
            truncated = ended & ~terminated
        elif len(ends) == 1:
            _note(
                f"{_name(self.env)} has none of {', '.join(TIME_OUTS)} in the infos of a step that ends an "
                "episode: `done` counts as terminated, and never as a time limit"
            )
        return observations, rewards, terminated, truncated, end_infos

    def _check_groups(self, observations: Any) -> None:
        """Raises EnvContractError if `step` returned other groups of observations than `reset`."""
        space = self.single_observation_space
        known = space.spaces if isinstance(space, spaces.Dict) else {}
        if isinstance(observations, Mapping) and observations.keys() != known.keys():
            raise EnvContractError(
                f"step returned the observations {', '.join(observations)}; the first ones of the env were "
                f"{', '.join(known) or 'not in a dict'}"
            )

    def _by_env(self, name: str, values: Any) -> np.ndarray:
        """Returns an array [N]. Raises EnvContractError unless there is a number for each env.

        name: says which values these are, for the error.
        """
        array = np.asarray(to_host(values))
        if array.shape not in self._shapes or array.dtype.kind not in "biuf":
            raise EnvContractError(
                f"{name} is {contract.describe(array)}; it should have a number for each of the "
                f"{self.num_envs} envs"
            )
        return array.reshape(self.num_envs)

    def _ages(self) -> np.ndarray | None:
        """Returns a copy of the steps of each env's episode so far, [N]; None if they are not counted."""
        for name in AGES:
            if (ages := _find(self.env, name)) is not None:
                return self._by_env(name, ages).copy()
        return None

    def _were_played(self, ages: np.ndarray | None) -> np.ndarray | None:
        """Returns which envs this step has played on in, [N] bool, None if that is not known: a reset may set
        any age, as Isaac Lab's quadcopter does where all envs end together. ages: before the step."""
        now = self._ages()
        return None if ages is None or now is None else now == ages + 1

    def _recognise(
        self, ended: np.ndarray, ages: np.ndarray | None, infos: Mapping[str, Any], num_ends: int
    ) -> None:
        """Sets the autoreset mode by what the first end of an episode shows. ages: before the step.

        Raises EnvContractError if it shows nothing: a wrong guess would lose the first step of each episode.
        """
        played = self._were_played(ages)
        if played is not None and not played[~ended].all():
            played = None  # the ages are in other units than steps
        if played is not None and played[ended].all():
            self.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
        elif played is None and num_ends == 2:
            self.metadata["autoreset_mode"] = recognised_mode(_name(self.env), infos, MODES_OF_STEP)
        else:
            self.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP
            if played is None and not FINAL_KEYS & infos.keys():
                _note(
                    f"{_name(self.env)} does not show the number of steps of each episode: it is taken "
                    "to reset an env in the step that ends its episode. If the next step does, set "
                    "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.NEXT_STEP"
                )
        self._is_proven = self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP

    def _check_resets(self, ages: np.ndarray | None) -> None:
        """Raises EnvContractError if this step has played on in an env whose episode had ended. ages: before
        the step; 0 in an env whose first episode has not begun, where they show nothing."""
        played = self._were_played(ages)
        if ages is None or played is None:
            return
        had_ended = self._waiting & (ages > 0)
        if not had_ended.any():
            return
        if played[had_ended].any():
            raise EnvContractError(
                f"{_name(self.env)} has not reset an env in the step after its episode; {MODES_OF_STEP}"
            )
        self._is_proven = True

    def _end_infos(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what `_kept` does of all infos. What is in LOGS becomes further statistics of episodes."""
        kept = self._kept(infos)
        stats: dict[str, Any] = {}
        for name in LOGS:
            if isinstance(kept.get(name), Mapping):
                entries = kept.pop(name)
                sums = {key: entries.pop(key) for key in SUMS if key in entries}
                kept |= {name: sums} if sums else {}
                stats |= {key: value for key, value in entries.items() if not isinstance(value, str)}
        if stats:
            own = kept.get(EXTRA_STATS, {})
            kept[EXTRA_STATS] = {**stats, **(own if isinstance(own, Mapping) else {EXTRA_STATS: own})}
        return kept

    def _kept(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Returns entries of infos on the host: a text or a number for all envs, an array [N], the mean of
        any other array in LOGS, as rsl_rl logs it, and dicts of these."""
        chosen = self._chosen(infos)
        if not chosen:
            return {}
        # Beneath a key, since the crossing keeps a buffer for each path.
        kept: dict[str, Any] = self._plain(self._crossing.to_host({"infos": chosen})["infos"])
        return kept

    def _chosen(self, infos: Mapping[str, Any], is_log: bool = False) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for key, value in infos.items():
            if isinstance(value, Mapping):
                chosen[key] = self._chosen(value, is_log or key in LOGS)
            elif (shape := _shape(value)) is not None and (is_log or shape in ((), (1,), *self._shapes)):
                chosen[key] = value
        return chosen

    def _plain(self, value: Any) -> Any:
        """Returns an entry as `_kept` does; None for what is neither a number nor a text."""
        if isinstance(value, Mapping):
            plain = {key: self._plain(inner) for key, inner in value.items()}
            return {key: inner for key, inner in plain.items() if inner is not None}
        if isinstance(value, str):
            return value
        array = np.asarray(value)
        if array.shape in self._shapes:
            return array.reshape(self.num_envs)
        if not array.size or array.dtype.kind not in "biuf":
            return None
        return float(array.item() if array.size == 1 else array.mean())

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


def _takes_nothing(function: Any) -> bool:
    """Returns whether a function, if there is one, can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _find(env: Any, name: str) -> Any:
    """Returns an attribute of an env, or of the env in its wrappers; None if neither has it."""
    found = v1_attribute(env, name, None)
    return v1_attribute(v1_attribute(env, "unwrapped", env), name, None) if found is None else found


def _shape(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of an array or of nested lists; None if these have no common one."""
    try:
        return tuple(np.shape(value))
    except (TypeError, ValueError):
        return None


def _with_critic(observations: Any, beside: Any) -> Any:
    """Returns observations as a dict of groups if the critic has others.

    beside: these, None, or the infos, with all groups under "observations".
    """
    if isinstance(beside, Mapping):
        groups = beside.get("observations")
        beside = groups.get("critic") if isinstance(groups, Mapping) else None
    if beside is None or isinstance(observations, Mapping):
        return observations
    return {"policy": observations, "critic": beside}


def _observation_space(env: Any, observations: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of the observation of one env. observations: the first ones of all, on the host."""
    names = ("single_observation_space", "observation_space")
    declared = next((space for name in names if (space := _find(env, name)) is not None), None)
    try:
        declared = None if declared is None else _converted(declared)
    except UnsupportedSpace:
        declared = None
    return _space_of(observations, declared, num_envs, "obs")


def _space_of(observations: Any, declared: Any, num_envs: int, key: str) -> spaces.Space[Any]:
    """Returns the space of one env by the observations of all of them, on the host.

    declared: the space by the simulator, of one env or of all, used where it fits. key: for an error.
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
    for space in () if declared is None else (declared, _of_one(declared, num_envs)):
        # Isaac Lab's indices are [N, 1].
        shape = () if isinstance(space, spaces.Discrete) and array.shape[1:] == (1,) else array.shape[1:]
        if space.shape == shape and np.can_cast(array.dtype, space.dtype, "same_kind"):
            return space
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)


def _action_space(env: Any, num_envs: int) -> spaces.Space[Any]:
    """Returns the space of an action of one env. Raises UnsupportedSpace if it is not known."""
    single = _find(env, "single_action_space")
    if single is not None:
        return _converted(single)
    num_actions = _find(env, "num_actions")
    declared = _find(env, "action_space")
    if declared is not None:
        space = _converted(declared)
        is_single = num_actions is not None or not _is_batched(_find(env, "observation_space"), num_envs)
        return space if isinstance(space, spaces.MultiDiscrete) and is_single else _of_one(space, num_envs)
    if num_actions is None:
        raise UnsupportedSpace(f"{_name(env)} has neither an action_space nor num_actions")
    return spaces.Box(-np.inf, np.inf, (int(num_actions),), np.float32)


def _is_batched(space: Any, num_envs: int) -> bool:
    """Returns whether a space, if there is one, is that of the vectors of all envs, [N, ...]."""
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
