"""Gymnasium VectorEnvs: many copies that are stepped in one call, without Python code per agent."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from sample_factory.envs import contract
from sample_factory.envs.abilities import StepsInBackground
from sample_factory.envs.adapters.adapter import Adapter
from sample_factory.envs.adapters.simulator_values import numbers_by_env
from sample_factory.envs.adapters.tensors import device_of, to_env, to_host
from sample_factory.envs.contract import COST_ENTRY
from sample_factory.envs.conventions import convention_of, name_of
from sample_factory.envs.end_infos import REPORTED, copy_info
from sample_factory.envs.protocol import (
    COST,
    NO_END_INFOS,
    EndInfos,
    EnvContractError,
    ObservationRows,
    Picture,
    StepResult,
)
from sample_factory.spaces.actions import batch_action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import batch_layout


def _with_masks(keys: Collection[str]) -> set[str]:
    """Returns `keys` of a vector env's infos, and `_key` for each `key`: under this key, Gymnasium stores
    which sub-envs have the entry."""
    return {*keys, *(f"_{key}" for key in keys)}


# Entries of a vector env's infos that are not entries of a sub-env's info.
FINAL_INFO = "final_info"  # infos of the step that ended the episode
# The observation before the reset; the second name is the one of Gymnasium 0.29 and ManiSkill.
FINAL_OBSERVATIONS = ("final_obs", "final_observation")
FINAL_KEYS = _with_masks({FINAL_INFO, *FINAL_OBSERVATIONS})
# What a wrapper around a vector env says about the ended episode: Gymnasium's RecordEpisodeStatistics.
RECORDED = _with_masks({"episode"})
MODES_OF_STEP = (
    "its class should have metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP} (the step "
    "that ends an episode returns the first observation of the next) or NEXT_STEP (the step after it does)"
)
MODES = f"{MODES_OF_STEP}, or DISABLED (`reset` with options['reset_mask'] does)"


class VectorEnvAdapter(Adapter):
    """Adapts a Gymnasium VectorEnv as one env with an agent for each of its sub-envs.

    A step runs Python code per agent only where an episode ended, to take the agent's infos out of the arrays
    of the vector env. With NEXT_STEP autoreset, the step after an episode's end only resets, and the agent is
    inactive in it; SAME_STEP and DISABLED have no such step.
    """

    recognised_as = "a vector env: a gymnasium.vector.VectorEnv, or a batched simulator with num_envs"

    def __init__(self, env: "gym.vector.VectorEnv[Any, Any, Any]"):
        super().__init__(env, resets_itself=True)
        contract.check_reset_parameters(env)
        if convention_of(env).stands_still:
            raise EnvContractError(
                f"a step of {name_of(env)} that resets some copies leaves the others where they are; "
                "make copies of single envs: gymnasium.make_vec(..., vectorization_mode='sync')"
            )
        self.num_agents = env.num_envs
        self.steps_in_background = isinstance(env, StepsInBackground)
        observation_space, self._flatten = batch_layout(env.single_observation_space)
        self._decode = batch_action_decoder(env.single_action_space)
        self.kinds = AgentKinds.one(observation_space, env.single_action_space, self.num_agents)
        self._mode = autoreset_mode(env)
        self._resets = np.zeros(self.num_agents, bool)  # NEXT_STEP: agents whose coming step only resets
        self._device: Any = None  # of the actions, if they are tensors of torch
        if isinstance(env.unwrapped, gym.vector.VectorEnv):  # ManiSkill's is a single env
            _keep_numbers(env.unwrapped)

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        observations, infos = contract.unpack_reset(self.env.reset(seed=seed))
        contract.check_info(infos, "reset")
        self._device = device_of(observations)
        self._write(to_host(observations), into)
        self._resets = np.zeros(self.num_agents, bool)
        return _active_agents(infos)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        return self._store(self.env.step(self._to_env(actions)), into)

    def send(self, actions: np.ndarray) -> None:
        self.env.send(self._to_env(actions))

    def receive(self, into: ObservationRows) -> StepResult:
        return self._store(self.env.receive(), into)

    def _to_env(self, actions: np.ndarray) -> Any:
        """Converts actions, [num_agents, num_action_values], to a batch of the env's action space, on the
        env's device."""
        return to_env(self._decode(actions), self._device)

    def _store(self, returned: Any, into: ObservationRows) -> StepResult:
        """Writes the observations of a step to the rows, and returns its other results. returned: the 5
        values that the env's `step` or `receive` returned."""
        contract.check_step(returned, "each an array with an entry per sub-env")
        *arrays, infos = returned
        observations, *results = to_host(tuple(arrays))
        rewards, terminated, truncated = (np.array(result) for result in results)  # the env may reuse its own
        if self._num_unchecked:
            self._num_unchecked -= 1
            _check_result(self.num_agents, rewards, terminated, truncated, infos)
        active = _active_agents(infos)
        end_infos = NO_END_INFOS
        ended = terminated | truncated
        were_reset, self._resets = self._resets, np.zeros(self.num_agents, bool)
        rewards[were_reset] = 0  # of no episode
        if ended.any():
            truncated = self.ends.are_cut(terminated, truncated)
            terminated = ended & ~truncated
            end_infos = _end_infos(infos, ended, self._mode)
            if ended[0] and self._mode != AutoresetMode.SAME_STEP:
                self._see_end()
            if self._mode == AutoresetMode.NEXT_STEP:
                # The observation is the last one of the episode; the coming step only resets. An end that
                # EnvPool reports in that step is of the game before: the next one has begun.
                self._resets = ended & ~were_reset
                active = ~self._resets if active is None else active & ~self._resets
            elif self._mode == AutoresetMode.DISABLED:
                mask = to_env(ended, self._device)
                observations, _ = self.env.reset(options=_KeptOptions(reset_mask=mask))
                observations = to_host(observations)
                if active is not None:
                    active[ended] = True
        costs = _costs(infos, end_infos, self.num_agents)
        if costs is not None:
            costs[were_reset] = 0
        self._write(observations, into)
        return StepResult(rewards, terminated, truncated, end_infos, active, costs)

    def _write(self, observations: Any, into: ObservationRows) -> None:
        try:
            batch = self._flatten(observations)
            into.write_all(batch)
        except (AttributeError, KeyError, IndexError, TypeError):
            contract.check_observation(self.env.observation_space, observations)  # says more
            raise

    def render(self) -> Picture | None:
        """Returns a copy of the picture of the first sub-env; None if the env draws nothing."""
        pictures = self.env.render()
        return None if pictures is None else np.array(to_host(pictures[0]))


class _KeptOptions(dict[str, Any]):
    """Options of `reset` from which `pop` removes nothing.

    SyncVectorEnv pops the reset mask; RecordEpisodeStatistics around it, which reads the options afterwards,
    would then reset the statistics of all sub-envs.
    """

    def pop(self, key: str, *default: Any) -> Any:
        return self.get(key, *default)


def _keep_numbers(env: "gym.vector.VectorEnv[Any, Any, Any]") -> None:
    """Makes a vector env widen the dtype of an array in its infos when a copy has a number of another dtype.
    Gymnasium keeps the dtype of the first copy's number: after a 1, it would store 0.5 as 0."""
    add_info = env._add_info

    def add_wide(vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        for key, value in env_info.items():
            array = vector_infos.get(key)
            if isinstance(array, np.ndarray) and isinstance(value, (int, float, np.generic, np.ndarray)):
                dtype = np.asarray(value).dtype
                if dtype != array.dtype and {dtype.kind, array.dtype.kind} <= {*"biuf"}:
                    vector_infos[key] = array.astype(np.result_type(array.dtype, dtype))
        return add_info(vector_infos, env_info, env_num)

    env._add_info = add_wide  # type: ignore[method-assign]  # the copies of a user's env are made already


def autoreset_mode(env: "gym.vector.VectorEnv[Any, Any, Any]") -> AutoresetMode:
    """Returns the autoreset mode that a vector env declares, else the mode in the table of conventions.
    Raises EnvContractError if neither has a mode."""
    declared = None
    # All classes without metadata share those of VectorEnv, into which ale-py writes the mode of any env.
    if env.metadata is not gym.vector.VectorEnv.metadata:
        declared = env.metadata.get("autoreset_mode")
    if declared is None:
        declared = vars(env.unwrapped).get("autoreset_mode", convention_of(env).autoreset)
    return checked_mode(name_of(env), declared, MODES)


def checked_mode(env_name: str, declared: Any, modes: str) -> AutoresetMode:
    """Converts an autoreset mode, as declared by an env or the table of conventions, to an AutoresetMode.

    Raises EnvContractError if `declared` is None or no mode: a wrong guess would lose the first step of each
    episode. modes: end of the message, which says what to declare.
    """
    if declared is None:
        raise EnvContractError(
            f"{env_name} does not say when it resets an env whose episode has ended; {modes}"
        )
    try:
        return AutoresetMode(declared)
    except ValueError:
        text = f"metadata['autoreset_mode'] is {contract.describe(declared)}; {modes}"
        raise EnvContractError(text) from None


def _check_result(num_agents: int, rewards: Any, terminated: Any, truncated: Any, infos: Any) -> None:
    """Raises EnvContractError unless rewards (numeric), terminated and truncated (bool) are arrays
    [num_agents], and infos is a dict."""
    arrays = {"rewards": (rewards, "biuf"), "terminated": (terminated, "b"), "truncated": (truncated, "b")}
    for name, (array, kinds) in arrays.items():
        if array.shape != (num_agents,) or array.dtype.kind not in kinds:
            kind = "bool" if kinds == "b" else "numeric"
            contract.refuse("step", array, name, f"a {kind} array of shape ({num_agents},)")
    contract.check_info(infos, "step")


def _costs(infos: Mapping[str, Any], end_infos: EndInfos, num_agents: int) -> np.ndarray | None:
    """Returns the cost of a step for each agent, [num_agents], copied from the infos; None if they have none.
    Where an episode ended, the cost in the agent's end info counts."""
    final = infos.get(FINAL_INFO)
    if COST not in infos and isinstance(final, Mapping):
        infos = final  # ManiSkill's has the infos of all agents, and `infos` those of the reset
    of_ends = {agent: info[COST] for agent, info in end_infos.items() if COST in info}
    if COST not in infos and not of_ends:
        return None
    costs = np.zeros(num_agents)
    if COST in infos:
        mask = to_host(infos.get(f"_{COST}", True))
        costs += np.where(mask, numbers_by_env(COST_ENTRY, infos[COST], num_agents), 0.0)
    for agent, cost in of_ends.items():
        costs[agent] = contract.to_number(cost, COST_ENTRY)
    return costs


def _active_agents(infos: Mapping[str, Any]) -> np.ndarray | None:
    """Returns a copy of `is_active` in the infos, [num_agents] bool, with True where its mask `_is_active` is
    False; None without this entry."""
    if "is_active" not in infos:
        return None
    active = np.array(to_host(infos["is_active"]), bool).reshape(-1)
    mask = to_host(infos.get("_is_active"))
    if mask is not None:
        active[~mask] = True
    return active


def _end_infos(infos: Mapping[str, Any], ended: np.ndarray, mode: AutoresetMode) -> EndInfos:
    """Returns the infos of the episodes that ended in a step, by agent. ended: [num_agents] bool, which
    agents' episodes ended. mode: with SAME_STEP and without FINAL_INFO, the infos belong to the next episode,
    and only entries that envs write at an end are returned."""
    if not infos:
        return NO_END_INFOS
    final = to_host(infos.get(FINAL_INFO))
    chosen = infos.keys() - FINAL_KEYS
    if final is not None:
        chosen &= RECORDED
    elif mode == AutoresetMode.SAME_STEP:  # the infos are of the reset, but for names that are only of an end
        chosen &= RECORDED | _with_masks(REPORTED)
    others = to_host({key: value for key, value in infos.items() if key in chosen})
    agents = np.flatnonzero(ended)
    pairs = zip(split_infos(others, agents, len(ended)), _entries(final, agents, len(ended)))
    return {agent: copy_info({**own, **(last or {})}) for agent, (own, last) in zip(agents.tolist(), pairs)}


def split_infos(infos: Mapping[str, Any], agents: np.ndarray, num_agents: int) -> list[dict[str, Any]]:
    """Splits the infos of a vector env, a (nested) dict of arrays, into a dict for each of `agents`
    (indices). If `_key` is an array [num_agents] bool, it says which agents have an entry `key`."""
    split: list[dict[str, Any]] = [{} for _ in agents]
    masks = {name for name in (f"_{key}" for key in infos) if _is_mask(infos.get(name), num_agents)}
    for key, value in infos.items():
        if key in masks:
            continue
        have = infos[f"_{key}"][agents].tolist() if f"_{key}" in masks else [True] * len(agents)
        for info, has, entry in zip(split, have, _entries(value, agents, num_agents)):
            if has:
                info[key] = entry
    return split


def _is_mask(value: Any, num_agents: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == bool and value.shape == (num_agents,)


def _entries(value: Any, agents: np.ndarray, num_agents: int) -> Sequence[Any]:
    """Splits one value of a vector env's infos among `agents` (indices). Returns for each agent its row of an
    array, or, if the value is a dict, a dict with the agent's rows.

    A value of any other kind, or of another length, belongs to all agents.
    """
    if isinstance(value, Mapping):
        return split_infos(value, agents, num_agents)
    if not isinstance(value, np.ndarray) or not value.ndim or len(value) != num_agents:
        return [value] * len(agents)
    return value[agents].tolist() if value.ndim == 1 else list(value[agents])
