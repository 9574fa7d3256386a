"""Batched simulators: robotics envs that step thousands of envs in one call and are no Gymnasium VectorEnv.

Brax, MuJoCo Playground, mjlab, Isaac Lab, Isaac Gym, and everything with the VecEnv of rsl_rl; BATCHED.md has
what each of them returns.
"""

import logging
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
    drawing,
    is_old_env,
    render_old,
    reset_with_seed,
    takes_seed,
)
from sample_factory.envs.adapters.simulator_spaces import action_space, observation_space
from sample_factory.envs.adapters.simulator_values import (
    InfoReader,
    find,
    note_once,
    numbers_by_env,
    shape_of,
)
from sample_factory.envs.adapters.tensors import Crossing, fill, no_grad, to_host
from sample_factory.envs.adapters.vector_env import FINAL_INFO, FINAL_KEYS, MODES_OF_STEP, checked_mode
from sample_factory.envs.conventions import AGES, convention_of, is_vec_env, name_of
from sample_factory.envs.protocol import COST, EnvContractError, named_faults

# Keys of infos: which envs were cut by a time limit, [N]. rsl_rl and Isaac Gym; Brax; old gym.
TIME_OUTS = ("time_outs", "truncation", CUT_BY_TIME)
# Attributes of simulators that return the critic's observations as a second value: rsl_rl 1.
PRIVILEGED = ("get_privileged_observations", "num_privileged_obs")


def is_simulator(env: Any) -> bool:
    """Returns whether an env is a batched simulator, which steps `num_envs` envs in one call. Of VectorEnvs,
    these are the ones that say on which device they run, as ManiSkill's does.

    With num_envs = 1, an object that could also be a single env of the old API is a simulator if it is known
    when it resets itself.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return isinstance(env, SimulatorVectorEnv) or find(env, "device") is not None
    num_envs = find(env, "num_envs")
    if not isinstance(num_envs, (int, np.integer)) or not hasattr(env, "step"):
        return False
    if isinstance(env, gym.Env) and not find(env, "is_vector_env"):
        if num_envs > 1:
            return find(env, "single_action_space") is not None
        # ManiSkill's env for a CPU has these attributes, too, but its observations are not batched.
        single = find(env, "single_observation_space")
        is_space = isinstance(single, spaces.Space)
        return is_space and env.observation_space == gym.vector.utils.batch_space(single, 1)
    if num_envs == 1 and is_old_env(env):
        return _declared_mode(env) is not None
    return hasattr(env, "reset") or hasattr(env, "get_observations")


class SimulatorVectorEnv(gym.vector.VectorEnv[Any, Any, Any], HoldsEnv, LimitsEpisodes, SpreadsEpisodes):
    """A batched simulator as a Gymnasium VectorEnv with arrays of NumPy.

    - `step` may return 4 values, where `done` includes the episodes that a time limit has cut; these are then
      in the infos under one of TIME_OUTS. Beside 5 values, these win over `terminated`. Rewards and ends are
      numbers of any dtype, [N] or [N, 1]. With `cfg.is_finite_horizon`, time limits terminate.
    - The observations of the critic may be a group of the others. If they are in the infos (rsl_rl 2) or are
      the second value of 5 (rsl_rl 1, see PRIVILEGED), the groups get the names "policy" and "critic".
    - `reset` is called at the start only; without it, `get_observations`. A simulator resets envs itself, in
      the step that ends their episode, or in the next one: as `metadata` or the table of conventions says.
    - The observation space is the declared one, where the first observations fit it; the rest follows from
      these. Without an action space, an action has `num_actions` numbers.
    """

    def __init__(self, env: Any):
        self.env = env
        self.num_envs = int(find(env, "num_envs"))
        declared = dict(find(env, "metadata") or {})
        self._mode = checked_mode(name_of(env), _declared_mode(env), MODES_OF_STEP)
        self.metadata = {**drawing(declared), "autoreset_mode": self._mode}
        self.render_mode = find(env, "render_mode")
        self._crossing = Crossing()
        self._is_privileged = any(find(env, name) is not None for name in PRIVILEGED)
        self._is_finite = bool(getattr(find(env, "cfg"), "is_finite_horizon", False))
        self._spread_seed: int | None = None
        self._infos = InfoReader(self.num_envs, self._crossing)
        with named_faults(name_of(env), "reset"), no_grad():
            self._first: Any = self._begin(None)  # observations that `reset` has not returned yet
        self.single_observation_space = observation_space(env, self._first, self.num_envs)
        self.single_action_space = action_space(env, self.num_envs)
        is_discrete = isinstance(self.single_action_space, spaces.Discrete)
        # Isaac Lab's tasks compare such actions with columns.
        self._has_columns = is_discrete and shape_of(find(env, "actions")) == (self.num_envs, 1)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)

    def _begin(self, seed: int | None) -> Any:
        """Resets the simulator; returns its observations on the host."""
        env = self.env
        observations, beside = self._pair(reset_with_seed(env, seed))
        if beside is None and not isinstance(observations, Mapping):
            if hasattr(env, "reset") and is_vec_env(env):
                # It may reset the simulator again, as early versions of MuJoCo Playground do.
                again, beside = self._pair(env.get_observations())
                # A wrapper that only hands on the method would hide what it does to observations.
                is_own = hasattr(type(env), "get_observations")
                if beside is not None or (is_own and shape_of(again) == shape_of(observations)):
                    observations = again
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
            raise EnvContractError(
                f"{name_of(self.env)} should reset envs itself, in `step`; {MODES_OF_STEP}"
            )
        observations, self._first = self._first, None
        # Without `reset`, the first observations can show the ages, so these are set before.
        if is_spread := self._spread_seed is not None and not hasattr(self.env, "reset"):
            self._spread()
        if is_spread or observations is None or (seed is not None and takes_seed(self.env)):
            with no_grad():
                observations = self._begin(seed)
        if not is_spread:
            self._spread()
        # Isaac Gym's `reset` resets no env. Its first `step` resets those that `reset_buf` names.
        due = None if self._mode == AutoresetMode.SAME_STEP else find(self.env, "reset_buf")
        if due is None:
            return observations, {}
        return observations, {"is_active": numbers_by_env("reset_buf", due, self.num_envs) == 0}

    def spread_episodes(self, seed: int) -> None:
        self._spread_seed = seed

    def _spread(self) -> None:
        """Lets each env start at a random step of its first episode, as rsl_rl does, so that episodes do not
        all end together, if that is wanted and the simulator counts the steps of episodes."""
        ages, limit = find(self.env, AGES), self.max_episode_steps()
        if self._spread_seed is not None and ages is not None and limit is not None:
            fill(ages, np.random.default_rng(self._spread_seed).integers(limit, size=self.num_envs))

    def max_episode_steps(self) -> int | None:
        limit = np.asarray(to_host(find(self.env, "max_episode_length")))
        is_one = limit.size == 1 and limit.dtype.kind in "iuf"  # rsl_rl allows a limit for each env
        return int(limit.item()) if is_one and 1 <= limit.item() < np.inf else None

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        own_actions = self._crossing.to_env(actions[:, None] if self._has_columns else actions)
        with no_grad():
            returned = self.env.step(own_actions)
        if not isinstance(returned, (tuple, list)) or len(returned) not in (4, 5):
            contract.check_step(returned, "each with an entry per env; or 4, with one `done` for both ends")
        observations, *values, infos = returned
        contract.check_info(infos, "step")
        beside = infos
        if len(values) == 3 and self._is_of_critic(values[0]):
            beside, *values = values
        observations, *values = self._crossing.to_host((_with_critic(observations, beside), *values))
        names = ("rewards", "done") if len(values) == 2 else ("rewards", "terminated", "truncated")
        rewards, *ends = (numbers_by_env(*pair, self.num_envs) for pair in zip(names, values))
        if not all(((end == 0) | (end == 1)).all() for end in ends):
            raise EnvContractError(
                f"{name_of(self.env)}: the {len(returned)} values of step should be observations, rewards, "
                "ends of 0 and 1 (one array, or terminated and truncated), and infos"
            )
        terminated = ends[0] != 0
        truncated = ends[1] != 0 if len(ends) == 2 else np.zeros_like(terminated)
        ended = terminated | truncated
        if not ended.any():
            of_steps = {key: infos[key] for key in ("is_active", COST) if key in infos}
            return observations, rewards, terminated, truncated, of_steps
        end_infos = self._infos.at_end(infos)
        key = next((key for key in TIME_OUTS if infos.get(key) is not None), None)
        if self._is_finite:
            terminated, truncated = ended, np.zeros_like(ended)
        elif key is not None:
            is_cut = numbers_by_env(f"infos[{key!r}]", infos[key], self.num_envs)
            if ((is_cut != 0) & ~ended).any():
                # In some hand tasks of Isaac Gym, `done` and the same time-out follow in the next step.
                note_once(
                    f"{name_of(self.env)}: infos[{key!r}] cuts an episode that `done` does not end, "
                    "which has no effect: `done` should include time limits",
                    logging.WARNING,
                )
            terminated = terminated & (is_cut == 0)
            truncated = ended & ~terminated
        elif len(ends) == 1:
            note_once(
                f"{name_of(self.env)} has none of {', '.join(TIME_OUTS)} in the infos of a step that ends an "
                "episode: `done` counts as terminated, and never as a time limit"
            )
        final = {key: value for key, value in end_infos.items() if key not in FINAL_KEYS}
        return observations, rewards, terminated, truncated, {FINAL_INFO: final, **end_infos}

    def _is_of_critic(self, value: Any) -> bool:
        """Returns whether the second of five values of `step` is the observation of the critic, or None."""
        has_numbers = shape_of(value) in ((self.num_envs,), (self.num_envs, 1))
        return value is None or (self._is_privileged and not has_numbers)

    def render(self) -> Any:
        """Returns pictures of envs, or one of all, [1 or N, height, width, 3]; None if it draws none."""
        if not hasattr(self.env, "render"):
            return None
        drawn = render_old(self.env, has_mode=self.render_mode is not None)
        return drawn if drawn is None or np.ndim(drawn) == 4 else [drawn]

    def close_extras(self, **kwargs: Any) -> None:
        gym_of_old = sys.modules.get("gym")
        own = v1_attribute(self.env, "unwrapped", self.env)
        # Brax does not call the constructor of gym's VectorEnv, whose `close` then raises AttributeError.
        is_half_made = gym_of_old is not None and isinstance(own, gym_of_old.vector.VectorEnv)
        if hasattr(self.env, "close") and not (is_half_made and "closed" not in vars(own)):
            self.env.close()


def _declared_mode(env: Any) -> Any:
    """Returns when a simulator resets its envs: as its metadata say, else by the table; None if neither."""
    declared = (find(env, "metadata") or {}).get("autoreset_mode")
    return convention_of(env).autoreset if declared is None else declared


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
