"""Envs with one agent."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs import contract
from sample_factory.envs.adapters.adapter import Adapter, AgentCodecs
from sample_factory.envs.adapters.old_gym import OldGymEnv, accepts_seed, is_observation_alone
from sample_factory.envs.protocol import NO_END_INFOS, Info, ObservationRows, StepResult, active_agents
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds


class SingleAgentAdapter(Adapter):
    """A Gymnasium env, or one with the API of the old gym, as a multi-agent env of one agent."""

    num_agents = 1

    def __init__(self, env: Any):
        super().__init__(env)
        if not isinstance(env, gym.Env) or not accepts_seed(env):
            self.env = OldGymEnv(env)
        self._codecs = AgentCodecs([self.env.observation_space], [self.env.action_space])
        self._decode = action_decoder(self.env.action_space)
        self.kinds = self._codecs.kinds

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        self.training_info.deliver()
        returned: Any = self.env.reset(seed=seed)
        if is_observation_alone(self.env.observation_space, returned):
            self.env = OldGymEnv(self.env, has_old_reset=True)
            returned = (returned, {})
        observation, info = contract.unpack_reset(returned)
        contract.check_info(info, "reset")
        into.write(0, self._codecs.flatten(0, observation))

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step(self._decode(actions[0]))
        contract.check_step(returned)
        observation, reward, terminated, truncated, info = returned
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated = contract.to_bool("terminated", terminated)
            truncated = contract.to_bool("truncated", truncated)
        if terminated or truncated:
            self.training_info.deliver()
            observation, _ = contract.unpack_reset(self.env.reset(seed=self.next_seed()))
        into.write(0, self._codecs.flatten(0, observation))
        if not isinstance(reward, contract.NUMBERS):
            reward = contract.to_number(reward)
        if info.__class__ is not dict:
            contract.check_info(info, "step")
        return _result_of_one_agent(reward, terminated, truncated, info)


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
            self.env.reset_into(view, seed=self.next_seed())
        return _result_of_one_agent(reward, terminated, truncated, info)


def _result_of_one_agent(reward: float, terminated: bool, truncated: bool, info: Info) -> StepResult:
    end_infos = {0: info} if terminated or truncated else NO_END_INFOS
    is_cut = truncated and not terminated
    return StepResult((reward,), (terminated,), (is_cut,), end_infos, active_agents((info,)))
