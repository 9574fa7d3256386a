"""Trajectories in shared memory, addressed by (buffer, step), and who owns each buffer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.exchange.kind_storage import KindLayout, KindStorage, observation_slots
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NOBODY = -1
INACTIVE = -1


class TrajectoryBuffers:
    """N buffers of T steps. Promises:

    1. A buffer is free, or owned by exactly one agent, or pending at one or more learners; every take and
       return asserts it.
    2. Only the worker of a buffer's partition takes it (`acquire`) and hands it over; only the learners that
       it is pending at give it back (`release`). So no lock is needed: each mark has one writer.
    3. It holds no Python state: after a worker died, `reclaim` frees what it owned.

    Arrays (N buffers, T steps, H state size, K row size of the kind of agents with the widest):
        outputs       [N, T, K] f32     packed policy outputs, see RowLayout
        versions      [N, T] i32        version of the policy that acted
        generations   [N, T] i32        generation of its weights, see Stamp
        rewards       [N, T] f32        scaled and clipped
        terminated, truncated [N, T] bool
        policy_ids    [N, T] i16        INACTIVE where the agent did not act
        active_at_end [N] bool          the agent also acts in step T, the one after the last
        chunk_rnn_states [N, T/chunk_length, H] f32  recurrent state before step i * chunk_length
        rnn_state     [N, H] f32        recurrent state before the coming step
    For each kind of agents, over the same memory: kinds[i].obs and .outputs, see KindStorage. Step T of an
    observation is the one that V(x_T) bootstraps from. A buffer holds one agent's data, and so one kind's.
    """

    def __init__(self, topology: Topology, layouts: Sequence[KindLayout], rnn_state_size: int):
        """layouts: of each kind of agents."""
        self.topology, self.rnn_state_size = topology, rnn_state_size
        self._layouts = tuple(layouts)
        slots = observation_slots(self._layouts, topology.num_buffers, topology.rollout + 1)
        self._num_slots = len(slots)
        row_size = max(layout.rows.size for layout in self._layouts)
        self._memory = SharedArrays(_specs(topology, slots, row_size, rnn_state_size))
        self._bind()
        self._owner[:] = NOBODY

    def _bind(self) -> None:
        memory = self._memory
        self.outputs = memory["outputs"]
        self.versions = memory["versions"]
        self.generations = memory["generations"]
        self.rewards, self.policy_ids = memory["rewards"], memory["policy_ids"]
        self.terminated, self.truncated = memory["terminated"], memory["truncated"]
        self.active_at_end = memory["active_at_end"]
        self.rnn_state, self.chunk_rnn_states = memory["rnn_state"], memory["chunk_rnn_states"]
        self._owner, self._pending = memory["owner"], memory["pending"]
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
        """Of the first kind: of all agents, where there is one kind."""
        return self.kinds[0].obs

    def kind_of_policy(self, policy_id: int) -> KindStorage:
        """The buffers as this policy's agents use them."""
        return self.kinds[self.topology.kind_of_policy(policy_id)]

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def poison(self) -> None:
        """For tests: whatever is read without having been written becomes visible."""
        keep = self._owner.copy(), self._pending.copy()
        self._memory.poison()
        self._owner[:], self._pending[:] = keep

    def acquire(self, worker_index: int, agent_ids: np.ndarray) -> np.ndarray | None:
        """In the rollout worker: a free buffer for each of the agents, or
        None if there are too few free ones."""
        own = self.topology.buffers_of(worker_index)
        owner, pending = self._owner[own.start : own.stop], self._pending[own.start : own.stop]
        free = np.flatnonzero((owner == NOBODY) & ~pending.any(axis=1))
        if len(free) < len(agent_ids):
            return None
        taken = free[: len(agent_ids)] + own.start
        self._owner[taken] = agent_ids
        return taken

    def hand_over(self, buffer_indices: np.ndarray, agent_ids: np.ndarray, acted: np.ndarray) -> None:
        """In the rollout worker: gives buffers [n] of these agents [n] to the learners of the policies in
        `acted`, [n, num_policies] bool; a buffer without any becomes free.
        """
        owners = self._owner[buffer_indices]
        assert (owners == agent_ids).all(), f"buffers {buffer_indices} of {agent_ids} are owned by {owners}"
        assert not self._pending[buffer_indices].any(), "an owned buffer is pending at a learner"
        # In this order: in between the buffers count as free, but only this worker could acquire them.
        self._owner[buffer_indices] = NOBODY
        self._pending[buffer_indices] = acted

    def release(self, buffers: np.ndarray, policy_id: int) -> None:
        """In a learner: it has copied these buffers."""
        assert self._pending[buffers, policy_id].all(), (
            f"policy {policy_id} releases buffers that it does not hold"
        )
        self._pending[buffers, policy_id] = False

    def reclaim(self, worker_index: int) -> int:
        """In the main process, when that worker is dead: frees the buffers
        its agents owned; returns how many."""
        own = self.topology.buffers_of(worker_index)
        owner = self._owner[own.start : own.stop]
        count = int(np.count_nonzero(owner != NOBODY))
        owner[:] = NOBODY
        return count

    def release_lost(self, worker_index: int, policy_id: int, tickets: Iterable[int]) -> int:
        """In a learner: frees what a dead worker had marked as pending here without sending a ticket.

        tickets: those that the learner holds. Returns how many buffers were lost.
        """
        pending = np.array(self.topology.buffers_of(worker_index))
        pending = pending[self._pending[pending, policy_id]]
        lost = pending[~np.isin(pending, list(tickets))]
        self._pending[lost, policy_id] = False
        return len(lost)

    def owner_of(self, buffer: int) -> int:
        """The agent that fills it, or NOBODY."""
        return int(self._owner[buffer])

    def counts(self) -> tuple[int, int, int]:
        """(free, owned by agents, pending at learners); they add up to num_buffers."""
        pending = self._pending.any(axis=1)  # read first, since a hand-over changes it last
        owned = self._owner != NOBODY
        assert not (owned & pending).any(), "a buffer is owned by an agent and pending at a learner"
        return int((~owned & ~pending).sum()), int(owned.sum()), int(pending.sum())


def _specs(
    topology: Topology, slots: Sequence[ArraySpec], row_size: int, rnn_state_size: int
) -> dict[str, ArraySpec]:
    n, t = topology.num_buffers, topology.rollout
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
    specs["owner"] = ArraySpec((n,), np.int32)
    specs["pending"] = ArraySpec((n, topology.num_policies), np.bool_)
    return specs


def zero_non_finite(obs: Mapping[str, np.ndarray], num_axes: int) -> np.ndarray:
    """Makes NaN and inf in observations 0, in place. Returns, over the first `num_axes` axes, where there
    were none: bool.

    Actor and learner must agree on this, or their recurrent states part.
    """
    shape = next(iter(obs.values())).shape[:num_axes]
    finite = np.ones(shape, bool)
    for array in obs.values():
        if array.dtype.kind == "f":
            good = np.isfinite(array)
            finite &= good.reshape(*shape, -1).all(axis=-1)
            array[~good] = 0.0
    return finite
