"""Batched simulators: robotics envs that step thousands of envs in one call and are no Gymnasium VectorEnv.

Brax, MuJoCo Playground, mjlab, Isaac Lab, and everything with the VecEnv of rsl_rl or the contract of
`Simulator`.
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.envs import contract
from sample_factory.envs.abilities import HoldsEnv, LimitsEpisodes, SpreadsEpisodes
from sample_factory.envs.adapters.old_gym import (
    CUT_BY_TIME,
    drawing,
    render_old,
    reset_with_seed,
)
from sample_factory.envs.adapters.simulator_values import (
    action_space,
    find,
    flags_by_env,
    infos_of_end,
    numbers_by_env,
    observation_space,
)
from sample_factory.envs.adapters.tensors import device_of, fill, no_grad, to_env, to_host
from sample_factory.envs.adapters.vector_env import FINAL_INFO, FINAL_KEYS, MODES_OF_STEP, checked_mode
from sample_factory.envs.conventions import AGES, convention_of, is_vec_env, name_of
from sample_factory.envs.protocol import COST, EnvContractError, named_faults
from sample_factory.envs.simulator import Simulator
from sample_factory.runtime.log import log

# Keys of infos: which envs were cut by a time limit, [N]. rsl_rl; Brax; old gym.
TIME_OUTS = ("time_outs", "truncation", CUT_BY_TIME)


def is_simulator(env: Any) -> bool:
    """Returns whether an env is a batched simulator, see `Simulator`. A VectorEnv is one if it has an
    attribute `device`, as ManiSkill's does.

    An object that steps only one env, or is a gym.Env, must declare when it resets itself, because
    ManiSkill's single env also has `num_envs`.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return isinstance(env, SimulatorVectorEnv) or find(env, "device") is not None
    num_envs = find(env, "num_envs")
    if not isinstance(num_envs, (int, np.integer)) or not hasattr(env, "step"):
        return False
    is_single = isinstance(env, gym.Env) and find(env, "single_action_space") is None
    return (num_envs > 1 and not is_single) or _declared_mode(env) is not None


def _declared_mode(env: Any) -> Any:
    """Returns the autoreset mode of a simulator: from its metadata, else from the table of conventions; None
    if neither has it."""
    declared = (find(env, "metadata") or {}).get("autoreset_mode")
    return convention_of(env).autoreset if declared is None else declared


class SimulatorVectorEnv(gym.vector.VectorEnv[Any, Any, Any], HoldsEnv, LimitsEpisodes, SpreadsEpisodes):
    """Wraps a Simulator as a Gymnasium VectorEnv that returns NumPy arrays."""

    def __init__(self, env: Simulator):
        self.env = env
        self.num_envs = int(find(env, "num_envs"))
        mode = checked_mode(name_of(env), _declared_mode(env), MODES_OF_STEP)
        if mode == AutoresetMode.DISABLED:
            raise EnvContractError(f"{name_of(env)} should reset envs itself, in `step`; {MODES_OF_STEP}")
        self.metadata = {**drawing(find(env, "metadata") or {}), "autoreset_mode": mode}
        self.render_mode = find(env, "render_mode")
        self._convention = convention_of(env)
        self._is_finite = bool(getattr(find(env, "cfg"), "is_finite_horizon", False))
        self._spread_seed: int | None = None
        self._device: Any = None  # of the actions
        with named_faults(name_of(env), "reset"):
            observations = self._begin(None)
        self.single_observation_space = observation_space(env, observations, self.num_envs)
        self.single_action_space = action_space(env, self.num_envs)
        self._has_columns = self._convention.has_index_columns and isinstance(
            self.single_action_space, spaces.Discrete
        )
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)

    def _begin(self, seed: int | None) -> Any:
        """Resets the simulator, and returns the first observations of all envs in host memory."""
        env: Any = self.env
        with no_grad():
            returned = reset_with_seed(env, seed)
            self._spread()
            # A wrapper that only hands on the method would hide what it does to observations.
            if is_vec_env(env) and hasattr(type(env), "get_observations"):
                returned = env.get_observations()
            is_pair = isinstance(returned, tuple) and len(returned) == 2
            observations = _with_critic(*returned) if is_pair else returned
        self._device = device_of(observations)
        return to_host(observations)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        return self._begin(seed), {}

    def spread_episodes(self, seed: int) -> None:
        self._spread_seed = seed

    def _spread(self) -> None:
        """Lets each env start at a random step of its first episode, so that episodes do not all end
        together, if `spread_episodes` was called and the simulator counts the steps of episodes."""
        ages, limit = find(self.env, AGES), self.max_episode_steps()
        if self._spread_seed is not None and ages is not None and limit is not None:
            fill(ages, np.random.default_rng(self._spread_seed).integers(limit, size=self.num_envs))

    def max_episode_steps(self) -> int | None:
        limit = np.asarray(to_host(find(self.env, "max_episode_length")))
        is_one = limit.size == 1 and limit.dtype.kind in "iuf"  # rsl_rl allows a limit for each env
        return int(limit.item()) if is_one and 1 <= limit.item() < np.inf else None

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        with no_grad():
            returned = self.env.step(to_env(actions[:, None] if self._has_columns else actions, self._device))
        if not isinstance(returned, (tuple, list)) or len(returned) not in (4, 5):
            contract.check_step(returned, "each with an entry per env; or 4, with one `done` for both ends")
        observations, *values, infos = returned
        contract.check_info(infos, "step")
        observations, rewards, *ends = to_host((_with_critic(observations, infos), *values))
        rewards = numbers_by_env("rewards", rewards, self.num_envs)
        names = ("done",) if len(ends) == 1 else ("terminated", "truncated")
        terminated, *cut = (flags_by_env(*pair, self.num_envs) for pair in zip(names, ends))
        truncated = cut[0] if cut else np.zeros_like(terminated)
        ended = terminated | truncated
        if not ended.any():
            of_steps = {key: infos[key] for key in ("is_active", COST) if key in infos}
            return observations, rewards, terminated, truncated, of_steps
        if self._is_finite:
            terminated, truncated = ended, np.zeros_like(ended)
        elif (are_cut := self._time_outs(infos, ended)) is not None:
            terminated = terminated & ~are_cut
            truncated = ended & ~terminated
        elif not cut:
            _note_once(
                f"{name_of(self.env)} has none of {', '.join(TIME_OUTS)} in the infos of a step that ends an "
                "episode: `done` counts as terminated, and never as a time limit"
            )
        end_infos = infos_of_end(infos, self.num_envs)
        final = {key: value for key, value in end_infos.items() if key not in FINAL_KEYS}
        return observations, rewards, terminated, truncated, {FINAL_INFO: final, **end_infos}

    def _time_outs(self, infos: Mapping[str, Any], ended: np.ndarray) -> np.ndarray | None:
        """Returns which envs the infos of a step mark as cut by a time limit, [N] bool; None without marks.
        ended: [N] bool, which envs' episodes ended in the step."""
        key = next((key for key in TIME_OUTS if infos.get(key) is not None), None)
        if key is None:
            return None
        are_cut: np.ndarray = numbers_by_env(f"infos[{key!r}]", infos[key], self.num_envs) != 0
        if (are_cut & ~ended).any():
            text = "cuts an episode that `done` does not end, which has no effect: `done` should include it"
            _note_once(f"{name_of(self.env)}: infos[{key!r}] {text}", logging.WARNING)
        return are_cut

    def render(self) -> Any:
        """Returns the simulator's pictures: [N, height, width, 3] if there is one for each env, or [1,
        height, width, 3] if one shows all envs. Returns None if the simulator draws nothing."""
        if not hasattr(self.env, "render"):
            return None
        drawn = render_old(self.env, has_mode=self.render_mode is not None)
        return drawn if drawn is None or np.ndim(drawn) == 4 else [drawn]

    def close_extras(self, **kwargs: Any) -> None:
        if hasattr(self.env, "close") and not self._convention.cannot_close:
            self.env.close()


@functools.cache  # once in a process
def _note_once(text: str, level: int = logging.INFO) -> None:
    log.log(level, text)


def _with_critic(observations: Any, infos: Any) -> Any:
    """Returns {"policy": observations, "critic": ...} where the infos of a step or reset have the critic's
    observations, as infos["observations"]["critic"]. Observations that are a dict already, or without those
    of a critic, are returned unchanged."""
    groups = infos.get("observations") if isinstance(infos, Mapping) else None
    critic = groups.get("critic") if isinstance(groups, Mapping) else None
    if critic is None or isinstance(observations, Mapping):
        return observations
    return {"policy": observations, "critic": critic}
