"""Trajectories in shared memory, addressed by (buffer, step), and the ownership of each buffer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.exchange.kind_storage import KindLayout, KindStorage, observation_slots
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NO_AGENT = -1  # owner of a buffer that is free or pending
NOT_PENDING = 0
FIRST_INCARNATION = 1
INACTIVE = -1  # policy id of steps in which no live policy acted


class TrajectoryBuffers:
    """N buffers of T steps. Promises:

    1. A buffer is free, or owned by exactly one agent, or pending at one or more learners; every hand-over
       and release asserts it.
    2. Only the worker of a buffer's partition acquires it and hands it over; only the learners that it is
       pending at release it. So no lock is needed: each mark has one writer.
    3. Ownership is in shared memory: after a worker has died, `reclaim` frees the buffers it owned, and
       `release_lost` the buffers it handed over without sending a ticket. The mark of a pending buffer is the
       incarnation of the worker that handed it over. So the successor may start at once, and a learner that
       looks for lost buffers later does not mistake the successor's buffers for lost ones.

    Arrays (N buffers, T steps, H floats of recurrent state, K floats of outputs of the widest kind of
    agents):
        outputs       [N, T, K] float32  packed policy outputs, see RowLayout
        versions      [N, T] int32       version of the policy that acted
        generations   [N, T] int32       generation of its weights, see Stamp
        rewards       [N, T] float32     scaled and clipped; NaN where the env's reward was not finite
        terminated    [N, T] bool
        truncated     [N, T] bool
        policy_ids    [N, T] int16       policy that acted; INACTIVE where the agent did not act, or a past
                                         self acted
        active_at_end [N] bool           the agent also acts in step T, the one after the last
        chunk_rnn_states [N, T/chunk_length, H] float32  recurrent state before step i * chunk_length
        rnn_state     [N, H] float32     recurrent state before the coming step
        incarnations  [num_workers + 1] int32  number of the process that fills a partition, from
                                         FIRST_INCARNATION; the last partition is that of other machines
    kinds[i].obs and kinds[i].outputs are the same memory as agents of kind i use it, see KindStorage.
    Observations have T+1 steps: V(x_T) is computed from the last. A buffer holds the data of one agent.
    """

    def __init__(self, topology: Topology, layouts: Sequence[KindLayout], rnn_state_size: int):
        """layouts: one per kind of agents. rnn_state_size: floats per agent; 0 without an RNN."""
        self.topology = topology
        self.rnn_state_size = rnn_state_size
        self._layouts = tuple(layouts)
        slots = observation_slots(self._layouts, topology.num_buffers, topology.rollout + 1)
        self._num_slots = len(slots)
        row_size = max(layout.rows.size for layout in self._layouts)
        self._memory = SharedArrays(_specs(topology, slots, row_size, rnn_state_size))
        self._bind()
        self._owner[:] = NO_AGENT
        self.incarnations[:] = FIRST_INCARNATION

    def _bind(self) -> None:
        memory = self._memory
        self.outputs = memory["outputs"]
        self.versions = memory["versions"]
        self.generations = memory["generations"]
        self.rewards = memory["rewards"]
        self.terminated = memory["terminated"]
        self.truncated = memory["truncated"]
        self.policy_ids = memory["policy_ids"]
        self.active_at_end = memory["active_at_end"]
        self.chunk_rnn_states = memory["chunk_rnn_states"]
        self.rnn_state = memory["rnn_state"]
        self.incarnations = memory["incarnations"]
        self._owner = memory["owner"]
        self._pending = memory["pending"]
        slots = [memory[f"obs/{i}"] for i in range(self._num_slots)]
        self.kinds = tuple(KindStorage(layout, slots, self.outputs) for layout in self._layouts)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("topology", "rnn_state_size", "_layouts", "_num_slots", "_memory")
        return {key: self.__dict__[key] for key in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    @property
    def obs(self) -> dict[str, np.ndarray]:
        """Observations of agents of kind 0: of all agents if there is one kind."""
        return self.kinds[0].obs

    def storage_of_policy(self, policy_id: int) -> KindStorage:
        """Returns the buffers as the agents of this policy use them."""
        return self.kinds[self.topology.kind_of_policy(policy_id)]

    @property
    def nbytes(self) -> int:
        """Size of the shared memory."""
        return self._memory.nbytes

    def acquire(self, worker_index: int, agent_ids: np.ndarray) -> np.ndarray | None:
        """In the rollout worker: returns a free buffer for each agent, [n] int64, or None if there are too
        few free ones."""
        own = self.topology.buffers_of(worker_index)
        owner = self._owner[own.start : own.stop]
        pending = self._pending[own.start : own.stop]
        free = np.flatnonzero((owner == NO_AGENT) & ~pending.any(axis=1))
        if len(free) < len(agent_ids):
            return None
        taken = free[: len(agent_ids)] + own.start
        self._owner[taken] = agent_ids
        return taken

    def hand_over(
        self, worker_index: int, buffer_indices: np.ndarray, agent_ids: np.ndarray, acted: np.ndarray
    ) -> None:
        """In the rollout worker: gives buffers [n] of these agents [n] to the learners of the policies in
        `acted`, [n, num_policies] bool; a buffer without any becomes free.
        """
        owners = self._owner[buffer_indices]
        assert (owners == agent_ids).all(), f"buffers {buffer_indices} of {agent_ids} are owned by {owners}"
        assert not self._pending[buffer_indices].any(), "an owned buffer is pending at a learner"
        # In this order: in between the buffers count as free, but only this worker could acquire them.
        self._owner[buffer_indices] = NO_AGENT
        self._pending[buffer_indices] = np.where(acted, self.incarnations[worker_index], NOT_PENDING)

    def release(self, buffer_indices: np.ndarray, policy_id: int) -> None:
        """In a learner: gives back buffers, [n] int, after copying them."""
        is_pending = self._pending[buffer_indices, policy_id] != NOT_PENDING
        assert is_pending.all(), f"policy {policy_id} releases buffers that are not pending at it"
        self._pending[buffer_indices, policy_id] = NOT_PENDING

    def reclaim(self, worker_index: int) -> int:
        """In the main process, after a worker has died and before its successor starts: frees the buffers
        that its agents owned, and begins the next incarnation. Returns the number of buffers."""
        own = self.topology.buffers_of(worker_index)
        owner = self._owner[own.start : own.stop]
        count = int(np.count_nonzero(owner != NO_AGENT))
        owner[:] = NO_AGENT
        self.incarnations[worker_index] += 1
        return count

    def release_lost(self, policy_id: int, incarnations: np.ndarray, tickets: Iterable[int]) -> int:
        """In a learner: frees the buffers that dead workers handed over without sending a ticket. Returns
        their number.

        incarnations: a copy made before the learner last read its inbox to the end. Every earlier incarnation
            had ended by then, so its tickets have all been received.
        tickets: the buffers of all tickets that the learner holds.
        """
        if (incarnations == FIRST_INCARNATION).all():  # nearly always
            return 0
        partitions = [len(self.topology.buffers_of(index)) for index in range(len(incarnations))]
        pending = self._pending[:, policy_id]
        of_dead = np.flatnonzero((pending != NOT_PENDING) & (pending < np.repeat(incarnations, partitions)))
        lost = of_dead[~np.isin(of_dead, list(tickets))]
        self._pending[lost, policy_id] = NOT_PENDING
        return len(lost)

    def owner_of(self, buffer: int) -> int:
        """Returns the id of the agent that fills the buffer, or NO_AGENT."""
        return int(self._owner[buffer])

    def counts(self) -> tuple[int, int, int]:
        """Returns how many buffers are (free, owned by agents, pending at learners)."""
        pending = self._pending.any(axis=1)  # read first, since a hand-over changes it last
        owned = self._owner != NO_AGENT
        assert not (owned & pending).any(), "a buffer is owned by an agent and pending at a learner"
        return int((~owned & ~pending).sum()), int(owned.sum()), int(pending.sum())


def _specs(
    topology: Topology, slots: Sequence[ArraySpec], row_size: int, rnn_state_size: int
) -> dict[str, ArraySpec]:
    n = topology.num_buffers
    t = topology.rollout
    specs = {f"obs/{i}": slot for i, slot in enumerate(slots)}
    specs["outputs"] = ArraySpec((n, t, row_size), np.float32)
    specs["versions"] = ArraySpec((n, t), np.int32)
    specs["generations"] = ArraySpec((n, t), np.int32)
    specs["rewards"] = ArraySpec((n, t), np.float32)
    specs["terminated"] = ArraySpec((n, t), np.bool_)
    specs["truncated"] = ArraySpec((n, t), np.bool_)
    specs["policy_ids"] = ArraySpec((n, t), np.int16)
    specs["active_at_end"] = ArraySpec((n,), np.bool_)
    specs["chunk_rnn_states"] = ArraySpec((n, topology.chunks_per_trajectory, rnn_state_size), np.float32)
    specs["rnn_state"] = ArraySpec((n, rnn_state_size), np.float32)
    specs["incarnations"] = ArraySpec((topology.num_workers + 1,), np.int32)
    specs["owner"] = ArraySpec((n,), np.int32)
    specs["pending"] = ArraySpec((n, topology.num_policies), np.int32)
    return specs


def zero_non_finite(obs: Mapping[str, np.ndarray], num_axes: int) -> np.ndarray:
    """Sets NaN and inf in observations to 0, in place.

    Returns bool over the first `num_axes` axes: True where all numbers were finite. Used by policy workers
    and learners: both must do the same, or their recurrent states differ.
    """
    shape = next(iter(obs.values())).shape[:num_axes]
    finite = np.ones(shape, bool)
    for array in obs.values():
        if array.dtype.kind == "f":
            good = np.isfinite(array)
            if good.all():  # nearly always; the rest takes several times as long
                continue
            finite &= good.reshape(*shape, -1).all(axis=-1)
            array[~good] = 0.0
    return finite
