"""Plays an env with trained policies, step by step, as the rollout workers do in training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.envs.end_infos import extra_stats, true_objective
from sample_factory.envs.protocol import EMPTY_INFO, EPISODE_CONTINUES, MultiAgentEnv, ObservationRows
from sample_factory.evaluation.policy import TrainedPolicy
from sample_factory.evaluation.results import EpisodeResult
from sample_factory.evaluation.scripted_policy import ScriptedPolicy
from sample_factory.spaces.actions import action_layout

Player = TrainedPolicy | ScriptedPolicy


class EpisodeRunner:
    """One env, and the policy that each of its agents follows. Promises:

    1. Observations, rewards, frameskip and time limits are those of training: the env is stepped alike.
    2. An agent's recurrent state is zero at the start of each of its episodes, and when it becomes inactive.
    3. The action of an inactive agent is zero, and no action is used in a later episode.
    4. Agents that share a policy share its forward pass.

    `active`: [num_agents] bool. `returns`: sum of the rewards of each agent's episode so far, [num_agents].
    `actions`: the last rows of actions, [num_agents, K] float32.
    """

    def __init__(self, env: MultiAgentEnv, policies: Sequence[Player], frameskip: int):
        """policies: one for each agent."""
        self.num_agents = env.num_agents
        self._env = env
        self._frameskip = frameskip
        self._rows = ObservationRows.allocate(env.kinds)
        row_size = max(action_layout(spaces.action).num_action_values for spaces in env.kinds.spaces)
        self.actions = np.zeros((env.num_agents, row_size), np.float32)
        self.env_frames = 0
        self.assign(policies)

    def assign(self, policies: Sequence[Player]) -> None:
        """Makes agent i follow policies[i], from a zero recurrent state. Call it when all episodes ended."""
        distinct = list(dict.fromkeys(policies))
        agents = [[i for i, other in enumerate(policies) if other is policy] for policy in distinct]
        self._groups = [_make_group(policy, np.array(members)) for policy, members in zip(distinct, agents)]

    def start(self, seed: int | None) -> None:
        """Begins the first episodes."""
        self.active = self._mask(self._env.reset(seed, self._rows))
        self.returns = np.zeros(self.num_agents)
        self._lengths = np.zeros(self.num_agents, np.int64)
        for group in self._groups:
            group.reset_state(np.ones(self.num_agents, bool))
        self.env_frames = 0

    def step(self) -> list[EpisodeResult]:
        """Steps the env once; returns the episodes that ended in this step."""
        for group in self._groups:
            group.act(self._rows, self.actions, self.active)
        self.actions[~self.active] = 0.0
        result = self._env.step(self.actions, self._rows)
        # An episode begins with the agent's first own step: a dead agent, or one yet to join, is in none.
        begun = self.active | (self._lengths > 0)
        self.returns += np.where(begun, result.rewards, 0.0)
        self._lengths += self._frameskip * self.active
        self.env_frames += self._frameskip
        ended = (np.asarray(result.terminated) | np.asarray(result.truncated)) & begun
        infos = {agent: result.end_infos.get(agent, EMPTY_INFO) for agent in np.flatnonzero(ended).tolist()}
        finished = [
            self._finish(agent, info) for agent, info in infos.items() if not info.get(EPISODE_CONTINUES)
        ]
        active = self._mask(result.active)
        for group in self._groups:
            group.reset_state(ended | (self.active & ~active))
        self.active = active
        return finished

    def _mask(self, active: np.ndarray | None) -> np.ndarray:
        """Returns `StepResult.active` as an array also where all agents are active."""
        return np.ones(self.num_agents, bool) if active is None else active

    def _finish(self, agent: int, info: Mapping[str, Any]) -> EpisodeResult:
        reward = float(self.returns[agent])
        length = int(self._lengths[agent])
        stats = extra_stats(info).numbers
        result = EpisodeResult(agent, reward, length, true_objective(info, reward), stats)
        self.returns[agent] = 0.0
        self._lengths[agent] = 0
        return result


def _make_group(policy: Player, agents: np.ndarray) -> "_PolicyGroup | _ScriptedGroup":
    if isinstance(policy, ScriptedPolicy):
        return _ScriptedGroup(policy, agents)
    return _PolicyGroup(policy, agents)


class _ScriptedGroup:
    """The agents that a scripted player plays. It has no recurrent state, and sees the env itself."""

    def __init__(self, policy: ScriptedPolicy, agents: np.ndarray):
        self._policy = policy
        self._agents = agents

    def act(self, rows: ObservationRows, actions: np.ndarray, active: np.ndarray) -> None:
        """Writes the actions of the group's active agents into `actions`, [num_agents, K]."""
        for agent in self._agents[active[self._agents]].tolist():
            row = self._policy.act(agent)
            actions[agent, : len(row)] = row

    def reset_state(self, where: np.ndarray) -> None:
        """Does nothing."""


class _PolicyGroup:
    """The agents that follow one policy, all of the same kind, with their recurrent states."""

    def __init__(self, policy: TrainedPolicy, agents: np.ndarray):
        """agents: their indices."""
        self._policy = policy
        self._agents = agents
        self._rnn_state = policy.first_rnn_state(len(agents))

    def act(self, rows: ObservationRows, actions: np.ndarray, active: np.ndarray) -> None:
        """Writes the actions of the group's agents into `actions`, [num_agents, K]."""
        arrays = rows.arrays_of(self._agents[0])
        observations = {key: array[self._agents, 0] for key, array in arrays.items()}
        chosen, self._rnn_state = self._policy.act(observations, self._rnn_state)
        actions[self._agents, : chosen.shape[1]] = chosen

    def reset_state(self, where: np.ndarray) -> None:
        """Zeroes the recurrent states of the agents in `where`, [num_agents] bool."""
        self._rnn_state[where[self._agents]] = 0.0
