"""Multi-agent envs in the style of v1: reset and step return lists with an entry per agent."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs import contract
from sample_factory.envs.adapters.adapter import Adapter, AgentCodecs, copied
from sample_factory.envs.adapters.old_gym import (
    are_infos,
    render_old,
    reset_with_seed,
    to_gymnasium,
    with_both_ends,
)
from sample_factory.envs.end_infos import copy_info
from sample_factory.envs.protocol import ObservationRows, Picture, StepResult, active_agents


class ListAdapter(Adapter):
    """Adapts a multi-agent env that returns lists with an entry per agent, and resets agents by itself.

    As in version 1, `reset` may return the observations alone, and `step` 4 values. Where agents differ, the
    env has lists `observation_spaces` or `action_spaces` with an entry per agent.
    """

    recognised_as = "a multi-agent env of lists: its num_agents is above 1, or it has is_multiagent"

    def __init__(self, env: Any):
        super().__init__(env, resets_itself=True)
        self.num_agents = int(v1_attribute(env, "num_agents", 1))
        self._codecs = AgentCodecs(
            spaces_by_agent(env, "observation_space", self.num_agents),
            spaces_by_agent(env, "action_space", self.num_agents),
        )
        self.kinds = self._codecs.kinds

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        observations, infos = reset_with_seed(self.env, seed), None
        if isinstance(observations, tuple) and len(observations) == 2:  # or of two agents
            first, second = observations
            is_info = second is None or (isinstance(second, Mapping) and not isinstance(first, Mapping))
            if is_info or are_infos(second):
                contract.check_reset_parameters(self.env)
                observations, infos = first, second
        contract.check_entries(self.num_agents, {"observations": observations})
        self._write(observations, into)
        if not infos:
            return None
        contract.check_entries(self.num_agents, {"infos": infos})
        for info in infos:
            contract.check_info(info, "reset")
        return active_agents(infos)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        returned = self.env.step([self._codecs.decode(i, row) for i, row in enumerate(actions)])
        if isinstance(returned, (tuple, list)) and len(returned) == 4:
            returned = with_both_ends(*returned)
        contract.check_step(returned, "each a list with an entry per agent")
        observations, rewards, terminated, truncated, infos = returned
        try:
            fits = {self.num_agents} == {*map(len, returned)}
        except TypeError:  # such as a single bool
            fits = False
        if self._num_unchecked or not fits:
            self._num_unchecked = max(0, self._num_unchecked - 1)
            names = ("observations", "rewards", "terminated", "truncated", "infos")
            contract.check_entries(self.num_agents, dict(zip(names, returned)))
            contract.check_agent_results(terminated, truncated, infos)
        self._write(observations, into)
        rewards = contract.to_numbers(rewards)
        # Each may be an array of one bool.
        terminated, truncated = ([bool(flag) for flag in flags] for flags in (terminated, truncated))
        end_infos = {}
        if any(ends := [*map(operator.or_, terminated, truncated)]):
            end_infos = {agent: copy_info(infos[agent]) for agent, has_ended in enumerate(ends) if has_ended}
            truncated = self.ends.are_cut(terminated, truncated).tolist()
            terminated = [has_ended and not is_cut for has_ended, is_cut in zip(ends, truncated)]
        active, costs = active_agents(infos), contract.costs_in(infos)
        return StepResult(rewards, terminated, truncated, end_infos, active, costs)

    def render(self) -> Picture | list[Picture] | None:
        return copied(render_old(self.env, has_mode=False))

    def _write(self, observations: Sequence[Any], into: ObservationRows) -> None:
        for agent, observation in enumerate(observations):
            into.write(agent, self._codecs.flatten(agent, observation))


def is_multiagent(env: Any) -> bool:
    """Returns whether an env says `is_multiagent = True` or has `num_agents > 1`, as in version 1."""
    return bool(v1_attribute(env, "is_multiagent", False)) or v1_attribute(env, "num_agents", 1) > 1


def v1_attribute(env: Any, name: str, default: Any) -> Any:
    """Returns an attribute of the env or of the outermost env in its wrappers that has it, or else the
    default. The attribute is looked up by name: the contract of version 1 needs no base class."""
    if isinstance(env, gym.Env):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else default
    return getattr(env, name, default)


def spaces_by_agent(env: Any, name: str, num_agents: int) -> Sequence[gym.Space[Any]]:
    """Returns the space of each agent: the env's list `<name>s` if it has one, else `<name>` for all agents.
    name: "observation_space" or "action_space". Raises ValueError if the list does not have an entry per
    agent."""
    spaces = v1_attribute(env, f"{name}s", None)
    if not isinstance(spaces, (list, tuple)):
        return [to_gymnasium(v1_attribute(env, name, None))] * num_agents
    if len(spaces) != num_agents:
        raise ValueError(f"{type(env).__name__} has {len(spaces)} {name}s for {num_agents} agents")
    return [to_gymnasium(space) for space in spaces]
