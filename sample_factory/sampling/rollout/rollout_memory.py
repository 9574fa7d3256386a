"""The trajectory buffers that the agents of one split are filling."""

from collections.abc import Mapping, Sequence

import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.exchange.trajectory_buffers import INACTIVE, WAITING, NotOwned, TrajectoryBuffers


class RolloutMemory:
    """Writes the steps of a split's agents to trajectory buffers: one buffer per agent, all at the same step.

    step: the current step, 0 .. rollout. buffer_indices: [agents] int64, the buffer of each agent.
    """

    def __init__(self, buffers: TrajectoryBuffers, worker_index: int, split: int):
        """Acquires the first buffer of each agent. Raises NotOwned if there are too few free buffers."""
        topology = buffers.topology
        self._buffers = buffers
        self._rollout = topology.rollout
        self._has_costs = topology.has_costs
        self._worker_index = worker_index
        first_id = topology.agent_id(worker_index, split, 0)
        self._agent_ids = np.arange(first_id, first_id + topology.agents_per_split)
        acquired = buffers.acquire(worker_index, self._agent_ids)
        if acquired is None:  # Topology allots at least one buffer for each agent
            raise NotOwned(f"worker {worker_index} finds too few free buffers at its start")
        self.buffer_indices = acquired
        self.step = 0
        self._last_turns = np.full(len(acquired), -1)  # of each agent in this rollout; -1: none yet
        buffers.rnn_state[acquired] = 0.0
        kinds = buffers.kinds
        self._action_columns = slice(0, max(kind.rows.num_action_values for kind in kinds))
        self._obs = kinds[0].obs
        self._obs_of_agent = None  # arrays for each agent of an env; None: self._obs for all agents
        self._agents_by_kind: list[tuple[Mapping[str, np.ndarray], slice | np.ndarray]]
        self._agents_by_kind = [(self._obs, slice(None))]
        if len(kinds) > 1:
            self._obs_of_agent = [kinds[kind].obs for kind in topology.kind_of_agent]
            kind_of_agent = np.tile(topology.kind_of_agent, topology.envs_per_split)
            self._agents_by_kind = [
                (kind.obs, np.flatnonzero(kind_of_agent == i)) for i, kind in enumerate(kinds)
            ]

    @property
    def is_full(self) -> bool:
        """Whether all steps of the rollout are stored, so that it must be finished before the next step."""
        return self.step == self._rollout

    def rows(self, agents: slice, step: int) -> ObservationRows:
        """Returns views into the buffers, to which an env writes the observations of its agents at `step`.
        agents: the env's agents in the split."""
        return ObservationRows(self._obs, self.buffer_indices[agents], step, self._obs_of_agent)

    def actions(self) -> np.ndarray:
        """Returns a copy of the actions at the current step, [agents, K] float32, where K is the largest
        number of action values that a kind of agents has."""
        return self._buffers.outputs[self.buffer_indices, self.step, self._action_columns]

    def store(
        self,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        policy_ids: np.ndarray,
        costs: np.ndarray | float = 0.0,
    ) -> None:
        """Writes the results of the current step, each [agents], to the buffers.

        Rewards, costs and ends of an agent that waits for its turn are added to its last turn, if that turn
        is in this rollout. costs: ignored unless topology.has_costs.
        """
        at = (self.buffer_indices, self.step)
        if self._has_costs:
            self._buffers.costs[at] = costs
        self._buffers.rewards[at] = rewards
        self._buffers.terminated[at] = terminated
        self._buffers.truncated[at] = truncated
        self._buffers.policy_ids[at] = policy_ids
        self._last_turns[policy_ids >= 0] = self.step
        waiting = np.flatnonzero((policy_ids == WAITING) & (self._last_turns >= 0))
        if len(waiting):
            last = (self.buffer_indices[waiting], self._last_turns[waiting])
            self._buffers.rewards[last] += rewards[waiting]
            if self._has_costs:
                self._buffers.costs[last] += self._buffers.costs[self.buffer_indices[waiting], self.step]
            self._buffers.terminated[last] |= terminated[waiting]
            self._buffers.truncated[last] |= truncated[waiting]

    def discard_step(self, agents: slice) -> None:
        """Excludes the current step of some agents from training, e.g. if their env was rebuilt in it."""
        self._buffers.policy_ids[self.buffer_indices[agents], self.step] = INACTIVE

    def reset_rnn_state(self, agents: np.ndarray | Sequence[int]) -> None:
        """Sets the recurrent state of some agents to zero. agents: indices, or a mask [agents] bool."""
        self._buffers.rnn_state[self.buffer_indices[agents]] = 0.0

    def finish_rollout(
        self, active: np.ndarray, policies: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Hands full buffers to learners, acquires free ones, and copies the last observations into them as
        step 0.

        active: [agents] bool, whether each agent acts in the coming step. policies: [agents] int, current
            policies.

        Returns (full buffers [agents] int64, acted [agents, num_policies] bool: whether the learner of policy
        p gets the buffer of agent a). Returns None, and changes nothing, if there are too few free buffers.
        """
        full = self.buffer_indices
        fresh = self._buffers.acquire(self._worker_index, self._agent_ids)
        if fresh is None:
            return None
        self._buffers.rnn_state[fresh] = self._buffers.rnn_state[full]
        for obs, agents in self._agents_by_kind:
            for array in obs.values():
                array[fresh[agents], 0] = array[full[agents], self._rollout]
        self._buffers.active_at_end[full] = active
        acted = self._acted(full, policies)
        self._buffers.hand_over(self._worker_index, full, self._agent_ids, acted)
        self.buffer_indices = fresh
        self.step = 0
        self._last_turns[:] = -1
        return full, acted

    def _acted(self, full: np.ndarray, policies: np.ndarray) -> np.ndarray:
        """Returns which learners get which buffers, [agents, num_policies] bool: a policy's learner gets the
        buffers in which the policy acted; no learner gets any in an evaluation.

        full: [agents] int64, the full buffers. policies: [agents], current policy of each agent; with
            --async_rl=False, it gets the buffers in which no policy acted.
        """
        topology = self._buffers.topology
        if topology.num_episodes is not None:  # no learner: the buffers become free at once
            return np.zeros((len(full), topology.num_policies), bool)
        policy_ids = self._buffers.policy_ids[full]
        acted = np.stack([(policy_ids == p).any(axis=1) for p in range(topology.num_policies)], axis=1)
        if topology.rollouts_per_iteration is not None:
            # The learner waits for a trajectory of every agent, even for one that it cannot train on.
            idle = np.flatnonzero(~acted.any(axis=1))
            acted[idle, policies[idle]] = True
        return acted
