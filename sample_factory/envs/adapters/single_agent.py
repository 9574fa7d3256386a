"""Envs with one agent."""

from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs import contract
from sample_factory.envs.adapters.adapter import Adapter, AgentCodecs
from sample_factory.envs.adapters.old_gym import OldGymEnv, accepts_seed, is_observation_alone
from sample_factory.envs.end_infos import copy_info
from sample_factory.envs.protocol import (
    COST,
    EPISODE_CONTINUES,
    NO_END_INFOS,
    EndInfos,
    ObservationRows,
    StepResult,
    active_agents,
)
from sample_factory.runtime.log import log


class SingleAgentAdapter(Adapter):
    """Adapts a Gymnasium env, or an env with the API of the old gym, as a multi-agent env of one agent."""

    recognised_as = "a single env: a gymnasium.Env, or an object with reset, step and spaces"
    num_agents = 1

    def __init__(self, env: Any):
        super().__init__(env)
        if not isinstance(env, gym.Env) or not accepts_seed(env):
            self.env = OldGymEnv(env)
        self._action_space = self.env.action_space
        self._has_warned = False
        self._codecs = AgentCodecs([self.env.observation_space], [self._action_space])
        self.kinds = self._codecs.kinds

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        self.training_info.deliver()
        returned: Any = self.env.reset(seed=seed)
        if is_observation_alone(self.env.observation_space, returned):
            self.env = OldGymEnv(self.env, has_old_reset=True)
            returned = (returned, {})
        observation, info = contract.unpack_reset(returned)
        contract.check_info(info, "reset")
        into.write(0, self._codecs.flatten(0, observation))
        return active_agents((info,))

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step(self._codecs.decode(0, actions[0]))
        contract.check_step(returned)
        observation, reward, terminated, truncated, info = returned
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated = contract.to_bool("terminated", terminated)
            truncated = contract.to_bool("truncated", truncated)
        reward = contract.to_number(reward)
        if info.__class__ is not dict:
            contract.check_info(info, "step")
        costs = [contract.to_number(info[COST], contract.COST_ENTRY)] if COST in info else None
        end_infos: EndInfos = NO_END_INFOS
        if terminated or truncated:
            (truncated,) = self.ends.are_cut([terminated], [truncated]).tolist()
            terminated = not truncated
            end_infos = {0: copy_info(info)}
            if not info.get(EPISODE_CONTINUES):
                self._see_end()
                self.training_info.deliver()
            seed = self.next_seeds.pop() if self.next_seeds else None
            observation, info = contract.unpack_reset(self.env.reset(seed=seed))
            contract.check_info(info, "reset")
            self._look_at_actions()
        into.write(0, self._codecs.flatten(0, observation))
        active = active_agents((info,))
        return StepResult((reward,), (terminated,), (truncated,), end_infos, active, costs)

    def _look_at_actions(self) -> None:
        """Logs a warning, once, if the env has changed its action space, which the agent does not follow."""
        before, now = self._action_space, self.env.action_space
        if now is before or self._has_warned or now == before:
            return
        self._has_warned = True
        log.warning(
            "The action_space of an env has changed from %s to %s, and its agent keeps the first one; let it "
            "have all actions, and say which are allowed by an action_mask",
            before,
            now,
        )
