"""Any env to the one that the framework sees: multi-agent, auto-resetting, writing observations in place."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from sample_factory.envs.abilities import OwnsProcess, RewardShaping, WritesObservations
from sample_factory.envs.adapters.agent_codecs import AgentCodecs
from sample_factory.envs.protocol import (
    EMPTY_INFO,
    EnvContractError,
    Infos,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout

WRONG_STEP = (
    "step returned {} values; Gymnasium's API has 5: observation, reward, terminated, truncated, info"
)

NUMBERS = (float, int, np.generic)

Ability = TypeVar("Ability")


def adapt(env: Any) -> MultiAgentEnv:
    """Chooses the adapter. Raises TypeError for something that is no env.

    An env is multi-agent when it says `is_multiagent = True` or has `num_agents > 1`, as in v1.
    """
    if isinstance(env, VectorEnv):
        return VectorEnvAdapter(env)
    if isinstance(env, WritesObservations):
        return InPlaceAdapter(env)
    if _is_of_pettingzoo(env, "ParallelEnv"):
        from sample_factory.envs.adapters.pettingzoo import ParallelEnvAdapter

        return ParallelEnvAdapter(env)
    if _is_of_pettingzoo(env, "AECEnv"):
        raise TypeError(
            f"make_env returned {type(env).__name__}, a turn-based AECEnv of PettingZoo; it should return a "
            "ParallelEnv, such as pettingzoo.utils.aec_to_parallel(env)"
        )
    if _is_multiagent(env):
        return ListAdapter(env)
    if isinstance(env, gym.Env):
        return SingleAgentAdapter(env)
    raise TypeError(
        f"make_env returned {type(env).__name__}; it should return a gymnasium.Env, a "
        "gymnasium.vector.VectorEnv, a pettingzoo.ParallelEnv, or a multi-agent env with num_agents, "
        "observation_space(s), action_space(s), reset and step"
    )


def _is_of_pettingzoo(env: Any, name: str) -> bool:
    """An instance of that class; PettingZoo need not be installed, and is loaded if the env is one."""
    pettingzoo = sys.modules.get("pettingzoo")
    return pettingzoo is not None and isinstance(env, vars(pettingzoo)[name])


def _is_multiagent(env: Any) -> bool:
    """v1's rule. These two attributes are the documented contract of user envs, hence the look-up by name."""
    for candidate in (env, env.unwrapped) if isinstance(env, gym.Env) else (env,):
        if getattr(candidate, "is_multiagent", False) or getattr(candidate, "num_agents", 1) > 1:
            return True
    return False


def ability(env: Any, ability: type[Ability]) -> Ability:
    """The outermost of an env and its wrappers that has it; else one that stands for an env without."""
    while isinstance(env, gym.Wrapper) and not isinstance(env, ability):
        env = env.env
    return env if isinstance(env, ability) else ability()


class SingleAgentAdapter:
    """A Gymnasium env as a multi-agent env of one agent."""

    num_agents = 1

    def __init__(self, env: gym.Env):
        self.env = env
        self.reward_shaping, self.process = ability(env, RewardShaping), ability(env, OwnsProcess)
        layout = observation_layout(env.observation_space)
        self._flatten, self._decode = layout.flatten, action_decoder(env.action_space)
        self.kinds = AgentKinds.one(layout.space, env.action_space, self.num_agents)

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        observation, _ = self.env.reset(seed=seed)
        into.write(0, self._flatten(observation))
        return ()

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step(self._decode(actions[0]))
        if len(returned) != 5:
            raise EnvContractError(WRONG_STEP.format(len(returned)))
        observation, reward, terminated, truncated, info = returned
        if terminated or truncated:
            observation, _ = self.env.reset()
        into.write(0, self._flatten(observation))
        if not isinstance(reward, NUMBERS):
            reward = _number(reward)
        return StepResult((reward,), (terminated,), (truncated and not terminated,), (info,))

    def render(self) -> np.ndarray | None:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _number(reward: Any) -> float:
    """Of an array of one number, say."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise EnvContractError(f"the reward is {reward!r}; it should be a number")
    return array.item()


class InPlaceAdapter:
    """A single-agent env that writes its observation where it belongs."""

    num_agents = 1

    def __init__(self, env: Any):
        self.env = env
        self.reward_shaping, self.process = ability(env, RewardShaping), ability(env, OwnsProcess)
        self.kinds = AgentKinds.one(env.observation_space, env.action_space, self.num_agents)
        self._decode = action_decoder(env.action_space)

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        self.env.reset_into(into.view(0), seed=seed)
        return ()

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        row = into.view(0)
        reward, terminated, truncated, info = self.env.step_into(self._decode(actions[0]), row)
        if terminated or truncated:
            self.env.reset_into(row)
        return StepResult((reward,), (terminated,), (truncated and not terminated,), (info,))

    def render(self) -> np.ndarray | None:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class ListAdapter:
    """A multi-agent env whose reset and step return an entry per agent, and which resets agents by itself.

    Where agents differ, the env has lists `observation_spaces` or `action_spaces` with an entry per agent.
    """

    def __init__(self, env: Any):
        self.env = env
        self.reward_shaping, self.process = ability(env, RewardShaping), ability(env, OwnsProcess)
        self.num_agents = int(env.num_agents)
        self._codecs = AgentCodecs(
            *(_of_each_agent(env, name, self.num_agents) for name in ("observation_space", "action_space"))
        )
        self.kinds = self._codecs.kinds

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        observations, infos = self.env.reset(seed=seed)
        self._write(observations, into)
        if not infos:
            return ()
        if isinstance(infos, Mapping) or len(infos) != self.num_agents:
            raise EnvContractError(
                f"reset returned the infos {infos}; they should be a list with an entry for each of the "
                f"{self.num_agents} agents"
            )
        return infos

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step([self._codecs.decode(i, row) for i, row in enumerate(actions)])
        if len(returned) != 5:
            raise EnvContractError(WRONG_STEP.format(len(returned)) + ", each a list with an entry per agent")
        observations, rewards, terminated, truncated, infos = returned
        if not len(rewards) == len(terminated) == len(truncated) == len(infos) == self.num_agents:
            raise EnvContractError(
                f"step returned {len(rewards)} rewards, {len(terminated)} terminated, {len(truncated)} "
                f"truncated and {len(infos)} infos for {self.num_agents} agents"
            )
        self._write(observations, into)
        truncated = [cut and not ended for cut, ended in zip(truncated, terminated)]
        return StepResult(rewards, terminated, truncated, infos)

    def _write(self, observations: Sequence[Any], into: ObservationRows) -> None:
        if len(observations) != self.num_agents:
            raise EnvContractError(
                f"the env returned {len(observations)} observations for {self.num_agents} agents"
            )
        for agent, observation in enumerate(observations):
            into.write(agent, self._codecs.flatten(agent, observation))

    def render(self) -> np.ndarray | None:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _of_each_agent(env: Any, name: str, num_agents: int) -> Sequence[gym.Space]:
    """The spaces of a list-style env's agents; by name like `num_agents`: these envs need no base class.

    Raises ValueError when there are not as many as agents.
    """
    spaces = getattr(env, f"{name}s", None)
    if not isinstance(spaces, (list, tuple)):
        return [getattr(env, name)] * num_agents
    if len(spaces) != num_agents:
        raise ValueError(f"{type(env).__name__} has {len(spaces)} {name}s for {num_agents} agents")
    return spaces


class VectorEnvAdapter:
    """A Gymnasium VectorEnv as one env with an agent per sub-env; no Python per agent.

    NEXT_STEP autoreset spends a step without meaning after each episode: the agent is inactive in it.
    SAME_STEP and DISABLED have none.
    """

    def __init__(self, env: VectorEnv):
        self.env = env
        self.reward_shaping, self.process = ability(env, RewardShaping), ability(env, OwnsProcess)
        self.num_agents = env.num_envs
        self._action_space = env.single_action_space
        observation_space, self._flatten = _batch_layout(env.single_observation_space)
        self.kinds = AgentKinds.one(observation_space, self._action_space, self.num_agents)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if not isinstance(
            self._action_space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.Box)
        ):
            raise ValueError(
                f"a VectorEnv with actions {self._action_space} is not supported; use single envs"
            )
        self._low = getattr(self._action_space, "low", None)
        self._high = getattr(self._action_space, "high", None)

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        observations, _ = self.env.reset(seed=seed)
        into.write_all(self._flatten(observations))
        return ()

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        observations, rewards, terminated, truncated, _ = self.env.step(self._decode(actions))
        ended = terminated | truncated
        if self._mode == AutoresetMode.DISABLED and ended.any():
            observations, _ = self.env.reset(options={"reset_mask": ended})
        infos: Infos = ()
        if self._mode == AutoresetMode.NEXT_STEP:
            # The observation of an episode's end was written; the coming step only resets and is not trained
            # on.
            infos = [{"is_active": False} if end else EMPTY_INFO for end in ended] if ended.any() else ()
        into.write_all(self._flatten(observations))
        return StepResult(rewards, terminated, truncated & ~terminated, infos)

    def _decode(self, actions: np.ndarray) -> np.ndarray:
        space = self._action_space
        if isinstance(space, gym.spaces.Discrete):
            return actions[:, 0].astype(np.int64) + space.start
        if isinstance(space, gym.spaces.MultiDiscrete):
            return actions.astype(space.dtype).reshape(-1, *space.shape) + space.start
        return np.clip(actions.reshape(-1, *space.shape), self._low, self._high).astype(space.dtype)

    def render(self) -> np.ndarray | None:
        frames = self.env.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self.env.close()


def _batch_layout(space: gym.Space) -> tuple[gym.spaces.Dict, Any]:
    """Layout of one sub-env's observation, and a function for a batch of them."""
    layout = observation_layout(space)
    if isinstance(space, gym.spaces.Box):
        return layout.space, lambda batch: {"obs": batch}
    if isinstance(space, gym.spaces.Dict) and all(
        isinstance(part, gym.spaces.Box) for part in space.values()
    ):
        return layout.space, lambda batch: batch
    if isinstance(space, gym.spaces.Discrete):
        eye, start = np.eye(space.n, dtype=np.float32), space.start
        return layout.space, lambda batch: {"obs": eye[batch - start]}
    raise ValueError(
        f"a VectorEnv with observations {space} is not supported; use Box, Dict of Box, or Discrete"
    )
