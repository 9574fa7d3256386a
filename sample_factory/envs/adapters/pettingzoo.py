"""PettingZoo's parallel and turn-based envs. PettingZoo itself is not imported."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sample_factory.envs import contract
from sample_factory.envs.adapters.adapter import Adapter, AgentCodecs
from sample_factory.envs.end_infos import copy_info
from sample_factory.envs.protocol import EMPTY_INFO, EnvContractError, Info, ObservationRows, StepResult

InfosByName = Mapping[Any, Info]


class Turns:
    """Steps a turn-based AECEnv through the interface of a ParallelEnv: each step is the turn of one agent.

    `is_active` in the infos says whose turn is next. As PettingZoo 1.27 prescribes, agents that have ended
    are stepped with None until they are removed, and `rewards` has what the last turn paid to each agent.
    """

    def __init__(self, env: Any):
        self._env = env

    @property
    def agents(self) -> list[Any]:
        """The agents that have not ended."""
        return list(self._env.agents)

    def reset(self, seed: int | None) -> tuple[dict[Any, Any], InfosByName]:
        self._env.reset(seed=seed)
        return self._observe(), self._infos()

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Plays one turn and returns the 5 values of a ParallelEnv, dicts by agent. actions: agent -> action;
        only the action of the agent whose turn it is has an effect."""
        env = self._env
        env.step(actions[env.agent_selection])
        results = dict(env.rewards), dict(env.terminations), dict(env.truncations)
        last_infos = dict(env.infos)
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        return self._observe(), *results, {**last_infos, **self._infos()}

    def _observe(self) -> dict[Any, Any]:
        return {agent: self._env.observe(agent) for agent in self._env.agents}

    def _infos(self) -> InfosByName:
        env = self._env
        return {
            agent: {**env.infos[agent], "is_active": agent == env.agent_selection} for agent in env.agents
        }


class ParallelEnvAdapter(Adapter):
    """Adapts a ParallelEnv; agent i is `possible_agents[i]`. Guarantees:

    1. An agent that is not in `env.agents` is inactive and observes zeros; it may join later.
    2. An agent that has terminated or was truncated stays inactive until the episode of the env is over.
    3. The env is reset when no agent is left; the observations are then the first ones of the new episode.
       Agents that took part in the old episode, and did not end before, are truncated in its last step.
    """

    recognised_as = "an env of PettingZoo: a ParallelEnv or AECEnv"

    def __init__(self, env: Any, turns: Turns | None = None):
        """Adapts a ParallelEnv, or an AECEnv together with the `turns` that step it."""
        super().__init__(env)
        self.takes_turns = turns is not None
        self._stepped = turns or env
        contract.check_reset_parameters(env)
        self._agents = list(env.possible_agents)
        self.num_agents = len(self._agents)
        self._codecs = AgentCodecs(
            [env.observation_space(agent) for agent in self._agents],
            [env.action_space(agent) for agent in self._agents],
        )
        self.kinds = self._codecs.kinds
        # Names of agents, all of the env's current episode.
        self._live: set[Any] = set()  # in the env and without an end: they act in the coming step
        self._took_part: set[Any] = set()  # live now or before, and without an end
        self._ended: set[Any] = set()

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        return self._active(self._begin_episode(seed, into))

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        decode = self._codecs.decode
        returned = self._stepped.step(
            {agent: decode(i, actions[i]) for i, agent in enumerate(self._agents) if agent in self._live}
        )
        contract.check_step(returned, "each a dict by agent")
        observations, rewards, terminations, truncations, infos = returned
        if self._num_unchecked:
            self._num_unchecked -= 1
            names = ("observations", "rewards", "terminations", "truncations", "infos")
            _check_dicts("step", dict(zip(names, returned)))
            contract.check_agent_results(*(list(values.values()) for values in returned[2:]))
        terminated = {agent for agent in self._took_part if terminations.get(agent, False)}
        truncated = {agent for agent in self._took_part if truncations.get(agent, False)}
        if truncated:
            flags = ([agent in ends for agent in self._agents] for ends in (terminated, truncated))
            are_cut = self.ends.are_cut(*flags)
            truncated = {agent for agent, is_cut in zip(self._agents, are_cut) if is_cut}
            terminated -= truncated
        self._ended |= terminated | truncated
        self._took_part -= self._ended
        self._find_live()
        if not self._live:
            truncated |= self._took_part
        all_ended = terminated | truncated
        result = StepResult(
            contract.to_numbers([rewards.get(agent, 0.0) for agent in self._agents]),
            [agent in terminated for agent in self._agents],
            [agent in truncated for agent in self._agents],
            {
                i: copy_info(infos.get(agent, EMPTY_INFO))
                for i, agent in enumerate(self._agents)
                if agent in all_ended
            },
            active=None,
            costs=contract.costs_in([infos.get(agent, EMPTY_INFO) for agent in self._agents]),
        )
        if self._live:
            self._write(observations, into)
        else:
            self._see_end()
            infos = self._begin_episode(None, into)
        return result._replace(active=self._active(infos))

    def _begin_episode(self, seed: int | None, into: ObservationRows) -> InfosByName:
        self._took_part = set()
        self._ended = set()
        observations: Mapping[Any, Any]
        infos: InfosByName
        self.training_info.deliver()
        observations, infos = contract.unpack_reset(self._stepped.reset(seed=seed))
        _check_dicts("reset", {"observations": observations, "infos": infos})
        self._find_live()
        if not self._live:
            raise EnvContractError("env.agents is empty after reset; at least one agent has to begin")
        self._write(observations, into)
        return infos

    def _find_live(self) -> None:
        present = set(self._stepped.agents)
        if not present.issubset(self._agents):
            raise EnvContractError(
                f"env.agents is {self._stepped.agents}, but env.possible_agents only {self._agents}"
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
                raise EnvContractError(
                    f"agent {agent!r} is in env.agents, but the env returned no observation for it"
                )

    def _active(self, infos: InfosByName) -> np.ndarray | None:
        """Returns which agents act in the coming step, [num_agents] bool; None: all. A live agent may be
        excluded by `is_active` in its info. infos: by agent, from the step or reset that returned the current
        observations."""
        active = [
            agent in self._live and infos.get(agent, EMPTY_INFO).get("is_active", True)
            for agent in self._agents
        ]
        return None if all(active) else np.array(active, bool)


def _check_dicts(call: str, returned: Mapping[str, Any]) -> None:
    """Raises EnvContractError unless each value that a call of the env returned is a dict. call: "reset" or
    "step". returned: name of a value, for the message -> value."""
    for name, value in returned.items():
        if not isinstance(value, Mapping):
            contract.refuse(call, value, f"the {name}", "a dict by agent")
