"""Gymnasium VectorEnvs: many copies that are stepped in one call, without Python code per agent."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.envs import contract
from sample_factory.envs.abilities import RewardShaping, find_ability
from sample_factory.envs.adapters.adapter import Adapter
from sample_factory.envs.protocol import (
    NO_END_INFOS,
    BackgroundEnv,
    EndInfos,
    EnvContractError,
    ObservationRows,
    Picture,
    StepResult,
)
from sample_factory.spaces.actions import batch_action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import UnsupportedSpace, batch_layout

# Entries of a vector env's infos that are not entries of a sub-env's info.
FINAL_INFO = "final_info"  # SAME_STEP: infos of the step that ended the episode; the others are of the reset
FINAL_KEYS = {FINAL_INFO, f"_{FINAL_INFO}", "final_obs", "_final_obs"}


class VectorEnvAdapter(Adapter):
    """A Gymnasium VectorEnv as one env with an agent per sub-env.

    A step runs Python code per agent only where an episode ended, to take the agent's infos out of the arrays
    of the vector env. NEXT_STEP autoreset spends a step without meaning after each episode: the agent
    is inactive in it. SAME_STEP and DISABLED have no such step.
    """

    def __init__(self, env: "gym.vector.VectorEnv[Any, Any, Any]"):
        super().__init__(env, resets_itself=True)
        if type(self.reward_shaping) is RewardShaping and isinstance(env.unwrapped, gym.vector.SyncVectorEnv):
            self.reward_shaping = _ShapedCopies(env.unwrapped)
        contract.check_reset_parameters(env)
        self.num_agents = env.num_envs
        observation_space, self._flatten = batch_layout(env.single_observation_space)
        if isinstance(env.single_action_space, spaces.Tuple):
            raise UnsupportedSpace(
                f"a VectorEnv with actions {env.single_action_space} is not supported; use single envs"
            )
        self._decode = batch_action_decoder(env.single_action_space)
        self.kinds = AgentKinds.one(observation_space, env.single_action_space, self.num_agents)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        observations, infos = contract.unpack_reset(self.env.reset(seed=seed))
        contract.check_info(infos, "reset")
        self._write(observations, into)
        return _active_agents(infos)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        return self._store(self.env.step(self._decode(actions)), into)

    def _store(self, returned: Any, into: ObservationRows) -> StepResult:
        """Writes the observations of a step, and returns the rest. returned: what the env's `step` does."""
        contract.check_step(returned, "each an array with an entry per sub-env")
        observations, rewards, terminated, truncated, infos = returned
        if self._num_unchecked:
            self._num_unchecked -= 1
            _check_result(self.num_agents, rewards, terminated, truncated, infos)
        active = _active_agents(infos)
        end_infos = NO_END_INFOS
        ended = terminated | truncated
        is_cut = truncated & ~terminated
        if ended.any():
            end_infos = _end_infos(infos, ended)
            if self._mode == AutoresetMode.NEXT_STEP:
                # The observation is the last one of the episode; the coming step only resets.
                active = ~ended if active is None else active & ~ended
            elif self._mode == AutoresetMode.DISABLED:
                # Copies: the reset may write into the same arrays.
                rewards = rewards.copy()
                terminated = terminated.copy()
                observations, _ = self.env.reset(options=_KeptOptions(reset_mask=ended))
                if active is not None:
                    active[ended] = True
        self._write(observations, into)
        return StepResult(rewards, terminated, is_cut, end_infos, active)

    def _write(self, observations: Any, into: ObservationRows) -> None:
        try:
            batch = self._flatten(observations)
            into.write_all(batch)
        except (AttributeError, KeyError, IndexError, TypeError):
            contract.check_observation(self.env.observation_space, observations)  # says more
            raise

    def render(self) -> Picture | None:
        """Returns the picture of the first sub-env."""
        pictures = self.env.render()
        return None if pictures is None else np.asarray(pictures[0])


class BackgroundVectorEnvAdapter(VectorEnvAdapter, BackgroundEnv):
    """A Gymnasium VectorEnv that StepsInBackground: `step` is `send` followed by `receive`."""

    def send(self, actions: np.ndarray) -> None:
        self.env.send(self._decode(actions))

    def receive(self, into: ObservationRows) -> StepResult:
        return self._store(self.env.receive(), into)


class _ShapedCopies(RewardShaping):
    """The reward shaping of the envs in a SyncVectorEnv."""

    def __init__(self, env: gym.vector.SyncVectorEnv):
        self._copies = [find_ability(copy, RewardShaping) for copy in env.envs]

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._copies[0].get_default_reward_shaping()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self._copies[agent].set_reward_shaping(shaping, 0)


class _KeptOptions(dict[str, Any]):
    """Options from which `pop` removes nothing.

    SyncVectorEnv pops the reset mask; RecordEpisodeStatistics around it, which reads the options afterwards,
    would then reset the statistics of all sub-envs.
    """

    def pop(self, key: str, *default: Any) -> Any:
        return self.get(key, *default)


def _check_result(num_agents: int, rewards: Any, terminated: Any, truncated: Any, infos: Any) -> None:
    """Raises EnvContractError unless there are arrays with an entry per agent, and a dict."""
    arrays = {"rewards": (rewards, "biuf"), "terminated": (terminated, "b"), "truncated": (truncated, "b")}
    for name, (array, kinds) in arrays.items():
        is_right = isinstance(array, np.ndarray) and array.shape == (num_agents,)
        if not is_right or array.dtype.kind not in kinds:
            kind = "bool" if kinds == "b" else "numeric"
            raise EnvContractError(
                f"step returned {contract.describe(array)} for {name}; it should be a {kind} array of shape "
                f"({num_agents},)"
            )
    contract.check_info(infos, "step")


def _active_agents(infos: Mapping[str, Any]) -> np.ndarray | None:
    """Returns a copy of `is_active` in the infos, [num_agents] bool, True where it is masked; or None."""
    if "is_active" not in infos:
        return None
    active = np.array(infos["is_active"], bool)
    mask = infos.get("_is_active")
    if mask is not None:
        active[~mask] = True
    return active


def _end_infos(infos: Mapping[str, Any], ended: np.ndarray) -> EndInfos:
    """Returns the infos of ended episodes by agent. ended: [num_agents] bool."""
    if not infos:
        return NO_END_INFOS
    agents = np.flatnonzero(ended)
    rows = _rows_of({key: value for key, value in infos.items() if key not in FINAL_KEYS}, agents, len(ended))
    if FINAL_INFO in infos:
        # Wrappers of the vector env add their entries (RecordEpisodeStatistics: "episode") outside.
        for row, final in zip(rows, _entries_of(infos[FINAL_INFO], agents, len(ended))):
            row.update(final or {})
    return dict(zip(agents.tolist(), rows))


def _rows_of(infos: Mapping[str, Any], agents: np.ndarray, num_agents: int) -> list[dict[str, Any]]:
    """Returns the entries of some agents in a (nested) dict of arrays, a dict for each of them.

    agents: their numbers. `_key`, where there is one, is the mask of `key`: [num_agents] bool, whether an
    agent has that entry.
    """
    rows: list[dict[str, Any]] = [{} for _ in agents]
    for key, value in infos.items():
        is_mask = key.startswith("_") and key[1:] in infos
        if is_mask:
            continue
        mask = infos.get(f"_{key}")
        has_entry = mask[agents] if mask is not None else np.ones(len(agents), bool)
        for row, entry, has in zip(rows, _entries_of(value, agents, num_agents), has_entry):
            if has:
                row[key] = entry
    return rows


def _entries_of(value: Any, agents: np.ndarray, num_agents: int) -> Sequence[Any]:
    """Returns the agents' parts of a value: their rows of an array, or dicts with their rows of the arrays in
    it.

    A value of any other kind, or with another length, belongs to all agents.
    """
    if isinstance(value, Mapping):
        return _rows_of(value, agents, num_agents)
    if isinstance(value, np.ndarray) and value.ndim and len(value) == num_agents:
        rows = value[agents]
        return rows.tolist() if rows.ndim == 1 else list(rows)
    return [value] * len(agents)
