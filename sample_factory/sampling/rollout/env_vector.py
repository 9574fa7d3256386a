"""The envs of one split of a rollout worker: the only place where `env.step` is called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sample_factory.envs.protocol import EMPTY_INFO, EndInfos, ObservationRows
from sample_factory.exchange.messages import PolicyRequest
from sample_factory.exchange.trajectory_buffers import INACTIVE, TrajectoryBuffers
from sample_factory.sampling.matchmaking.matchmaker import Matchmaker, PlayerAssignment
from sample_factory.sampling.rollout.agent_memory import AgentMemory
from sample_factory.sampling.rollout.episode_log import EpisodeLog
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.sampling.settings import RewardRule


class FullBuffers(NamedTuple):
    """The buffers of one rollout of all agents of a split, handed over to learners."""

    buffer_indices: np.ndarray  # [agents] int64
    acted: np.ndarray  # [agents, num_policies] bool: policy p gets the buffer of agent a


class EnvVector:
    """E envs with A agents each, stepped one after another; all its agents are at the same step of their
    buffers.

    Agents are numbered 0 .. E*A-1. Cycle: `requests` -> (policy workers write outputs) -> `step` -> ... until
    `rollout_is_full`; then `finish_rollout`, which needs free buffers and can be tried again later.
    """

    def __init__(
        self,
        envs: Sequence[GuardedEnv],
        matchmakers: Sequence[Matchmaker],
        buffers: TrajectoryBuffers,
        worker_index: int,
        split: int,
        reward_rule: RewardRule,
    ):
        topology = buffers.topology
        self._envs, self._shared, self._reward_rule = envs, buffers, reward_rule
        self._worker_index = worker_index
        self._split = split
        self._agents_per_env = count = topology.agents_per_env
        self._agents_of = [slice(first, first + count) for first in range(0, len(envs) * count, count)]
        self._num_agents, self._rollout = topology.agents_per_split, topology.rollout
        first = topology.agent_id(worker_index, split, 0)
        self._agent_ids = np.arange(first, first + self._num_agents)
        self.log = EpisodeLog([env.name for env in envs], self._agents_per_env, topology.frameskip)
        self._step = 0
        self._shaping: dict[int, Mapping[str, Any]] = {}  # by policy, where it is not the env's own
        self._active = np.ones(self._num_agents, bool)
        self._all_active = True
        self._players = PlayerAssignment(matchmakers, self._agents_per_env)
        acquired = buffers.acquire(self._worker_index, self._agent_ids)
        assert acquired is not None, "Topology allots at least one buffer for each agent"
        self._buffer_indices = acquired
        self._shared.rnn_state[self._buffer_indices] = 0.0
        self._memory = AgentMemory(buffers, len(envs))

    def reset(
        self,
        seeds: Sequence[int | None],
        random_steps: Sequence[int],
        random_actions: Callable[[ObservationRows], np.ndarray],
    ) -> None:
        """Starts the envs, then takes `random_steps[i]` random actions in env i so that episodes are out of
        step.

        random_actions: of the agents of an env, by their observations: [agents_per_env, K] float32.
        """
        active = {}
        for i, env in enumerate(self._envs):
            rows = self._rows(i, 0)
            env.reset(seeds[i], rows)
            active[i] = env.active_after_reset
            for _ in range(random_steps[i]):
                result = env.step(random_actions(rows), rows)
                active[i] = env.active_after_reset if result is None else result.active
        self._note_activity(active)

    @property
    def envs(self) -> Sequence[GuardedEnv]:
        return self._envs

    @property
    def rollout_is_full(self) -> bool:
        return self._step == self._rollout

    def set_shaping(self, policy: int, shaping: Mapping[str, Any]) -> None:
        """Reward shaping of the agents that this policy plays, now and later, from their next episode on."""
        self._shaping[policy] = shaping
        for agent in np.flatnonzero(self._players.policies == policy):
            self._shape(int(agent))

    def _shape(self, agent: int) -> None:
        shaping = self._shaping.get(int(self._players.policies[agent]))
        if shaping is not None:
            env, agent_of_env = divmod(agent, self._agents_per_env)
            self._envs[env].set_reward_shaping(shaping, agent_of_env)

    def requests(self, incarnation: int = 0) -> list[tuple[int, PolicyRequest]]:
        """(policy, request) for each policy and past self that must act; empty when no agent is active."""
        requests = []
        for player, agents in self._players.groups(self._active):
            buffer_indices = self._buffer_indices[agents]
            request = PolicyRequest(
                self._worker_index, self._split, self._step, buffer_indices, incarnation, player.past_self
            )
            requests.append((player.policy_id, request))
        return requests

    def step(self) -> None:
        """Acts in every env with the outputs at the present step; writes what came of it."""
        t = self._step
        actions = self._memory.actions(self._buffer_indices, t)
        if not self._all_active:
            actions[~self._active] = 0.0
        rewards = np.zeros(self._num_agents)
        terminated, truncated = np.zeros(self._num_agents, bool), np.zeros(self._num_agents, bool)
        infos, active, lost = {}, {}, []
        for i, (env, mine) in enumerate(zip(self._envs, self._agents_of)):
            result = env.step(actions[mine], self._rows(i, t + 1))
            if result is None:
                lost.append(i)
                active[i] = env.active_after_reset
                continue
            rewards[mine], terminated[mine], truncated[mine], infos[i], active[i] = result
        self._store(t, rewards, terminated, truncated)
        self.log.add(rewards, self._active)
        # An agent that stays inactive after its end may go on saying so: that is no further episode.
        self._end_episodes((terminated | truncated) & self.log.begun, infos)
        self._note_activity(active)
        for env in lost:
            self._drop_episodes(env)
        self._step += 1

    def finish_rollout(self) -> FullBuffers | None:
        """Hands the full buffers over to the learners and acquires free ones; the observation after the last
        step becomes step 0 of the next rollout.

        Returns None, and changes nothing, while there are too few free buffers.
        """
        shared, full = self._shared, self._buffer_indices
        fresh = shared.acquire(self._worker_index, self._agent_ids)
        if fresh is None:
            return None
        self._memory.carry_over(full, fresh)
        shared.active_at_end[full] = self._active
        acted = self._acted(full)
        shared.hand_over(full, self._agent_ids, acted)
        self._buffer_indices = fresh
        self._step = 0
        return FullBuffers(full, acted)

    def _acted(self, full: np.ndarray) -> np.ndarray:
        """Returns which policies get which buffers, [agents, num_policies] bool."""
        topology = self._shared.topology
        policy_ids = self._shared.policy_ids[full]
        acted = np.stack([(policy_ids == p).any(axis=1) for p in range(topology.num_policies)], axis=1)
        if topology.rollouts_per_iteration is not None:
            # The learner waits for a trajectory of every agent, even if nothing in it can be trained on.
            idle = np.flatnonzero(~acted.any(axis=1))
            acted[idle, self._players.policies[idle]] = True
        return acted

    def _rows(self, env: int, step: int) -> ObservationRows:
        return self._memory.rows(self._buffer_indices[self._agents_of[env]], step)

    def _store(self, t: int, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> None:
        shared, buffers, rule = self._shared, self._buffer_indices, self._reward_rule
        clipped = np.clip(rewards * rule.scale, -rule.clip, rule.clip)
        finite = np.isfinite(rewards)
        if not finite.all():
            # An infinite reward is broken, not large: it must not pass as one of `clip`.
            clipped[~finite] = np.nan
            self.log.tell_broken_rewards(rewards, np.flatnonzero(~finite))
            rewards[~finite] = 0.0  # in the episode's return
        shared.rewards[buffers, t] = clipped
        shared.terminated[buffers, t] = terminated
        shared.truncated[buffers, t] = truncated
        learns = self._active & self._players.is_live
        shared.policy_ids[buffers, t] = np.where(learns, self._players.policies, INACTIVE)

    def _end_episodes(self, ended: np.ndarray, infos: Mapping[int, EndInfos]) -> None:
        """infos: by env, without those that were lost."""
        agents = np.flatnonzero(ended).tolist()
        for agent in agents:
            env, agent_of_env = divmod(agent, self._agents_per_env)
            self.log.end(agent, self._players.player_of(agent), infos[env].get(agent_of_env, EMPTY_INFO))
        if agents:
            self._begin_episodes(agents, self.log.end_matches(agents))

    def _begin_episodes(self, ended: Sequence[int], over: Sequence[int]) -> None:
        """ended: agents whose episodes have; over: envs whose matches have."""
        self._shared.rnn_state[self._buffer_indices[ended]] = 0.0
        for agent in self._players.next_episodes(ended, over, self.log.begun):
            self._shape(agent)

    def _drop_episodes(self, env: int) -> None:
        """Of an env that was rebuilt in this step: the step is not trained on, and nothing is reported."""
        mine = self._agents_of[env]
        self._shared.policy_ids[self._buffer_indices[mine], self._step] = INACTIVE
        self.log.drop(env)
        self._begin_episodes(range(mine.start, mine.stop), [env])

    def _note_activity(self, active_by_env: Mapping[int, np.ndarray | None]) -> None:
        """Resets the recurrent state of agents that become inactive; the learner cuts there too.

        active_by_env: by env, [agents_per_env] bool, or None where all agents are active.
        """
        if self._all_active and all(of_env is None for of_env in active_by_env.values()):
            return
        active = np.ones(self._num_agents, bool)
        for env, of_env in active_by_env.items():
            if of_env is not None:
                active[self._agents_of[env]] = of_env
        self._shared.rnn_state[self._buffer_indices[self._active & ~active]] = 0.0
        self._active = active
        self._all_active = bool(active.all())

    def close(self) -> None:
        for env in self._envs:
            env.close()
