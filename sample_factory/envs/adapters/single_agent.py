"""Gymnasium envs with one agent."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.abilities import OwnsProcess, RewardShaping, find_ability
from sample_factory.envs.protocol import (
    NO_END_INFOS,
    EnvContractError,
    Info,
    ObservationRows,
    Picture,
    StepResult,
    active_agents,
    check_step,
)
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout

NUMBERS = (float, int, np.generic)


class SingleAgentAdapter:
    """A Gymnasium env as a multi-agent env of one agent."""

    num_agents = 1

    def __init__(self, env: "gym.Env[Any, Any]"):
        self.env: Any = env
        self.reward_shaping = find_ability(env, RewardShaping)
        self.process = find_ability(env, OwnsProcess)
        layout = observation_layout(env.observation_space)
        self._flatten = layout.flatten
        self._decode = action_decoder(env.action_space)
        self.kinds = AgentKinds.one(layout.space, env.action_space, self.num_agents)

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        observation, _ = self.env.reset(seed=seed)
        into.write(0, self._flatten(observation))

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step(self._decode(actions[0]))
        check_step(returned)
        observation, reward, terminated, truncated, info = returned
        if terminated or truncated:
            observation, _ = self.env.reset()
        into.write(0, self._flatten(observation))
        if not isinstance(reward, NUMBERS):
            reward = _number(reward)
        return _result_of_one_agent(reward, terminated, truncated, info)

    def render(self) -> Picture | list[Picture] | None:
        picture: Picture | list[Picture] | None = self.env.render()
        return picture

    def close(self) -> None:
        self.env.close()


class InPlaceAdapter:
    """A single-agent env that writes its observation directly into the rows."""

    num_agents = 1

    def __init__(self, env: Any):
        """env: a gymnasium.Env that WritesObservations; its observation space is a Dict of Box."""
        self.env = env
        self.reward_shaping = find_ability(env, RewardShaping)
        self.process = find_ability(env, OwnsProcess)
        self.kinds = AgentKinds.one(env.observation_space, env.action_space, self.num_agents)
        self._decode = action_decoder(env.action_space)

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        self.env.reset_into(into.view(0), seed=seed)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        view = into.view(0)
        reward, terminated, truncated, info = self.env.step_into(self._decode(actions[0]), view)
        if terminated or truncated:
            self.env.reset_into(view)
        return _result_of_one_agent(reward, terminated, truncated, info)

    def render(self) -> Picture | list[Picture] | None:
        picture: Picture | list[Picture] | None = self.env.render()
        return picture

    def close(self) -> None:
        self.env.close()


def _result_of_one_agent(reward: float, terminated: bool, truncated: bool, info: Info) -> StepResult:
    end_infos = {0: info} if terminated or truncated else NO_END_INFOS
    is_cut = truncated and not terminated
    return StepResult((reward,), (terminated,), (is_cut,), end_infos, active_agents((info,)))


def _number(reward: Any) -> float:
    """Returns the reward as a number if it is an array of one. Raises EnvContractError otherwise."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise EnvContractError(f"the reward is {reward!r}; it should be a number")
    return float(array.item())
