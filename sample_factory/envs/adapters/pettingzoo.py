"""A PettingZoo ParallelEnv as the env that the framework sees. Needs no import of PettingZoo itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sample_factory.envs.abilities import OwnsProcess, RewardShaping
from sample_factory.envs.adapters.adapters import WRONG_STEP, ability
from sample_factory.envs.adapters.agent_codecs import AgentCodecs
from sample_factory.envs.protocol import EMPTY_INFO, EnvContractError, Infos, ObservationRows, StepResult

InfoByAgent = Mapping[Any, Mapping[str, Any]]


class ParallelEnvAdapter:
    """`possible_agents` says how many agents there are and in which order. Promises:

    1. An agent that is not in `env.agents` is inactive and observes zeros; it may join later.
    2. An agent that has terminated or was truncated stays inactive until the episode of the env is over.
    3. The env is reset when no agent is left; the observations are then the first ones of the new episode.
       Who took part and had no end of its own is truncated there.
    """

    def __init__(self, env: Any):
        self.env = env
        self.reward_shaping = ability(env.unwrapped, RewardShaping)
        self.process = ability(env.unwrapped, OwnsProcess)
        self._agents = list(env.possible_agents)
        self.num_agents = len(self._agents)
        self._codecs = AgentCodecs(
            [env.observation_space(agent) for agent in self._agents],
            [env.action_space(agent) for agent in self._agents],
        )
        self.kinds = self._codecs.kinds
        self._live: set[Any] = set()  # they act in the coming step
        self._took_part: set[Any] = set()  # in this episode of the env, without an end yet
        self._ended: set[Any] = set()  # in this episode of the env

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        infos = self._begin_episode(seed, into)
        return [self._info(agent, infos, infos) for agent in self._agents]

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        decode = self._codecs.decode
        returned = self.env.step(
            {agent: decode(i, actions[i]) for i, agent in enumerate(self._agents) if agent in self._live}
        )
        if len(returned) != 5:
            raise EnvContractError(WRONG_STEP.format(len(returned)) + ", each a dict by agent")
        observations, rewards, terminations, truncations, infos = returned
        terminated = {agent for agent in self._took_part if terminations.get(agent, False)}
        truncated = {agent for agent in self._took_part if truncations.get(agent, False)} - terminated
        self._ended |= terminated | truncated
        self._took_part -= self._ended
        self._find_live()
        coming = infos
        if self._live:
            self._write(observations, into)
        else:
            truncated |= self._took_part
            coming = self._begin_episode(None, into)
        return StepResult(
            [rewards.get(agent, 0.0) for agent in self._agents],
            [agent in terminated for agent in self._agents],
            [agent in truncated for agent in self._agents],
            [self._info(agent, infos, coming) for agent in self._agents],
        )

    def _begin_episode(self, seed: int | None, into: ObservationRows) -> InfoByAgent:
        self._took_part, self._ended = set(), set()
        observations, infos = self.env.reset(seed=seed)
        self._find_live()
        if not self._live:
            raise EnvContractError("env.agents is empty after reset; at least one agent has to begin")
        self._write(observations, into)
        return infos

    def _find_live(self) -> None:
        present = set(self.env.agents)
        if not present.issubset(self._agents):
            raise EnvContractError(
                f"env.agents is {self.env.agents}, but env.possible_agents only {self._agents}"
            )
        self._live = present - self._ended
        self._took_part |= self._live

    def _write(self, observations: Mapping[Any, Any], into: ObservationRows) -> None:
        for i, agent in enumerate(self._agents):
            if agent not in self._live:
                into.clear(i)
            elif agent in observations:
                into.write(i, self._codecs.flatten(i, observations[agent]))
            else:
                raise EnvContractError(f"agent {agent!r} is in env.agents, but has got no observation")

    def _info(self, agent: Any, infos: InfoByAgent, coming: InfoByAgent) -> Mapping[str, Any]:
        """infos: those of the step; coming: those that belong to the observation, which say who may act.

        They differ where the env was reset after the step.
        """
        info = infos.get(agent, EMPTY_INFO)
        is_active = agent in self._live and coming.get(agent, EMPTY_INFO).get("is_active", True)
        return info if info.get("is_active", True) == is_active else {**info, "is_active": is_active}

    def render(self) -> np.ndarray | None:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
