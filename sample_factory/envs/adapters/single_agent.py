"""Envs with one agent."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.adapters.adapter import Adapter
from sample_factory.envs.adapters.old_gym import OldGymEnv, accepts_seed, is_observation_alone
from sample_factory.envs.contract import (
    NUMBERS,
    check_info,
    check_observation,
    check_step,
    to_bool,
    to_number,
    unpack_reset,
)
from sample_factory.envs.protocol import NO_END_INFOS, Info, ObservationRows, StepResult, active_agents
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout


class SingleAgentAdapter(Adapter):
    """A Gymnasium env, or one with the API of the old gym, as a multi-agent env of one agent."""

    num_agents = 1

    def __init__(self, env: Any):
        super().__init__(env)
        if not isinstance(env, gym.Env) or not accepts_seed(env):
            self.env = OldGymEnv(env)
        layout = observation_layout(self.env.observation_space)
        self._flatten = layout.flatten
        self._decode = action_decoder(self.env.action_space)
        self.kinds = AgentKinds.one(layout.space, self.env.action_space, self.num_agents)

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        self.training_info.deliver()
        returned: Any = self.env.reset(seed=seed)
        if is_observation_alone(self.env.observation_space, returned):
            self.env = OldGymEnv(self.env, has_old_reset=True)
            returned = (returned, {})
        observation, info = unpack_reset(returned)
        check_info(info, "reset")
        self._write(observation, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step(self._decode(actions[0]))
        check_step(returned)
        observation, reward, terminated, truncated, info = returned
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated = to_bool("terminated", terminated)
            truncated = to_bool("truncated", truncated)
        if terminated or truncated:
            self.training_info.deliver()
            observation, _ = unpack_reset(self.env.reset())
        self._write(observation, into)
        if not isinstance(reward, NUMBERS):
            reward = to_number(reward)
        if info.__class__ is not dict:
            check_info(info, "step")
        return _result_of_one_agent(reward, terminated, truncated, info)

    def _write(self, observation: Any, into: ObservationRows) -> None:
        if self._num_unchecked:
            self._num_unchecked -= 1
            check_observation(self.env.observation_space, observation)
        try:
            flat = self._flatten(observation)
        except (KeyError, IndexError, TypeError, ValueError):
            check_observation(self.env.observation_space, observation)  # raises an error that says more
            raise
        into.write(0, flat)


class InPlaceAdapter(Adapter):
    """A single-agent env that writes its observation directly into the rows."""

    num_agents = 1

    def __init__(self, env: Any):
        """env: a gymnasium.Env that WritesObservations; its observation space is a Dict of Box."""
        super().__init__(env)
        self.kinds = AgentKinds.one(env.observation_space, env.action_space, self.num_agents)
        self._decode = action_decoder(env.action_space)

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        self.training_info.deliver()
        self.env.reset_into(into.view(0), seed=seed)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        view = into.view(0)
        reward, terminated, truncated, info = self.env.step_into(self._decode(actions[0]), view)
        if terminated or truncated:
            self.training_info.deliver()
            self.env.reset_into(view)
        return _result_of_one_agent(reward, terminated, truncated, info)


def _result_of_one_agent(reward: float, terminated: bool, truncated: bool, info: Info) -> StepResult:
    end_infos = {0: info} if terminated or truncated else NO_END_INFOS
    is_cut = truncated and not terminated
    return StepResult((reward,), (terminated,), (is_cut,), end_infos, active_agents((info,)))
