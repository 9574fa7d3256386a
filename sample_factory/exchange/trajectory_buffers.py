"""Trajectories in shared memory, addressed by (buffer, step), and the ownership of each buffer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.exchange.topology import Topology
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds

NO_AGENT = -1  # owner of a buffer that is free or pending
NOT_PENDING = 0
FIRST_INCARNATION = 1
INACTIVE = -1  # policy id of steps in which no live policy acted
WAITING = -2  # policy id of steps in which a live policy waits for its turn


class NotOwned(RuntimeError):
    """Raised if a process uses a buffer of the shared memory that it does not own at that moment."""

    def __init__(self, what: str):
        super().__init__(
            f"{what}; another process has used the same shared memory: does an env fork, and go on in both "
            "processes?"
        )


class KindLayout(NamedTuple):
    """Says how agents of one kind use a buffer: their observation space, and which columns of a packed row of
    policy outputs, [size] float32, hold actions, log-probability, value and logits."""

    observation_space: gym.spaces.Dict  # of Box
    num_action_values: int
    num_logits: int

    @property
    def actions(self) -> slice:
        return slice(0, self.num_action_values)

    @property
    def log_prob(self) -> int:
        return self.num_action_values

    @property
    def value(self) -> int:
        return self.num_action_values + 1

    @property
    def logits(self) -> slice:
        return slice(self.num_action_values + 2, self.size)

    @property
    def size(self) -> int:
        """Number of columns of a packed row of policy outputs."""
        return self.num_action_values + 2 + self.num_logits


def kind_layouts(kinds: AgentKinds) -> list[KindLayout]:
    """Returns the layout of each kind of agents. Raises UnsupportedSpace for an unsupported action space."""
    layouts = [(space.observation, action_layout(space.action)) for space in kinds.spaces]
    return [KindLayout(space, own.num_action_values, own.num_logits) for space, own in layouts]


class KindStorage:
    """Gives access to observations and policy outputs in all N buffers, for agents of one kind. `rows` is the
    layout, which names the columns of `outputs`, [N, T, layout.size] float32, a view of memory that all kinds
    share. `obs` has the observations by key, [N, T+1, *shape]."""

    def __init__(self, layout: KindLayout, obs: Mapping[str, np.ndarray], outputs: np.ndarray):
        """Creates views of existing arrays. obs: key -> [N, T+1, *shape], contiguous. outputs: [N, T, K]
        float32, where K is the largest `size` of the layouts of all kinds."""
        self.rows = layout
        self.obs = dict(obs)
        self.outputs = outputs[..., : layout.size]
        self._flat = {key: array.reshape(-1, *array.shape[2:]) for key, array in obs.items()}

    def row_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns shape and dtype of one observation, by key."""
        return {key: (view.shape[2:], view.dtype) for key, view in self.obs.items()}

    def read_observations(
        self, buffer_indices: np.ndarray, steps: np.ndarray, into: Mapping[str, np.ndarray]
    ) -> None:
        """Copies the observations at (buffer_indices, steps) to `into`.

        buffer_indices, steps: int arrays of shape S, or broadcast to S. into[key]: [*S, *shape].

        Raises IndexError, before anything is copied, if an index or a step is out of range.
        """
        num_buffers = len(self.outputs)
        num_steps = self.outputs.shape[1] + 1
        rows = buffer_indices * num_steps + steps
        if rows.min() < 0 or rows.max() >= num_buffers * num_steps:
            raise IndexError(
                f"a message names buffers {buffer_indices} and steps {steps}, but there are {num_buffers} "
                f"buffers of {num_steps} steps"
            )
        for key, flat in self._flat.items():
            # `take` is several times as fast as obs[buffer_indices, steps]. Its default mode, which checks
            # the rows once more, would make a second copy.
            flat.take(rows, axis=0, out=into[key], mode="clip")


class TrajectoryBuffers:
    """Holds N buffers of T steps in shared memory. Promises:

    1. A buffer is free, or owned by exactly one agent, or pending at one or more learners; every hand-over
       and release checks this, and raises NotOwned.
    2. Only the worker of a buffer's partition acquires it and hands it over. Only learners at which it is
       pending release it. Each mark has one writer, so no lock is needed.
    3. Ownership is in shared memory. After a worker has died, `reclaim` frees the buffers that it owned, and
       `release_lost` the buffers that it handed over without sending a ticket. A pending buffer is marked
       with the incarnation of its worker, so the worker may be restarted at once: learners can still tell
       which pending buffers are from the dead worker.

    Arrays (N buffers, T steps, H floats of recurrent state, K floats of outputs of the widest kind of
    agents):
        outputs       [N, T, K] float32  packed policy outputs, see KindLayout
        versions      [N, T] int32       version of the policy that acted
        generations   [N, T] int32       generation of its weights, see Stamp
        rewards       [N, T] float32     scaled and clipped; NaN where the env's reward was not finite
        costs         [N, T] float32     as the env gave them; [N, 0] unless topology.has_costs
        terminated    [N, T] bool
        truncated     [N, T] bool
        policy_ids    [N, T] int16       policy that acted; INACTIVE where the agent did not act, or a past
                                         self acted; WAITING where it waits for its turn
        active_at_end [N] bool           whether the agent acts in the step after the last
        chunk_rnn_states [N, T/chunk_length, H] float32  recurrent state before step i * chunk_length
        rnn_state     [N, H] float32     recurrent state before the coming step
        incarnations  [num_workers + 1] int32  how many processes have filled a partition so far, from
                                         FIRST_INCARNATION; the last partition is for other machines
    kinds[i]: observations of agents of kind i, and their part of the outputs, see KindStorage.
    A buffer holds the data of one agent. Observations have T+1 steps: the last one is for V(x_T).
    """

    def __init__(self, topology: Topology, layouts: Sequence[KindLayout], rnn_state_size: int):
        """Allocates the arrays in shared memory; all buffers are free. layouts: one for each kind of agents.
        rnn_state_size: floats of an agent's recurrent state; 0 without an RNN."""
        self.topology = topology
        self.rnn_state_size = rnn_state_size
        self._layouts = tuple(layouts)
        self._memory = SharedArrays(_specs(topology, self._layouts, rnn_state_size))
        self._bind()
        self._owner[:] = NO_AGENT
        self.incarnations[:] = FIRST_INCARNATION

    def _bind(self) -> None:
        memory = self._memory
        self.outputs = memory["outputs"]
        self.versions = memory["versions"]
        self.generations = memory["generations"]
        self.rewards = memory["rewards"]
        self.costs = memory["costs"]
        self.terminated = memory["terminated"]
        self.truncated = memory["truncated"]
        self.policy_ids = memory["policy_ids"]
        self.active_at_end = memory["active_at_end"]
        self.chunk_rnn_states = memory["chunk_rnn_states"]
        self.rnn_state = memory["rnn_state"]
        self.incarnations = memory["incarnations"]
        self._owner = memory["owner"]
        self._pending = memory["pending"]
        self.kinds = tuple(
            KindStorage(
                layout, {key: memory[f"obs/{kind}/{key}"] for key in layout.observation_space}, self.outputs
            )
            for kind, layout in enumerate(self._layouts)
        )

    def __getstate__(self) -> dict[str, Any]:
        kept = ("topology", "rnn_state_size", "_layouts", "_memory")
        return {key: self.__dict__[key] for key in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    @property
    def obs(self) -> dict[str, np.ndarray]:
        """Key -> observations of agents of kind 0, [N, T+1, *shape]."""
        return self.kinds[0].obs

    def storage_of_policy(self, policy_id: int) -> KindStorage:
        """Returns the views of all buffers for the kind of agents that this policy plays."""
        return self.kinds[self.topology.kind_of_policy(policy_id)]

    @property
    def nbytes(self) -> int:
        """Size of the shared memory in bytes."""
        return self._memory.nbytes

    def acquire(self, worker_index: int, agent_ids: np.ndarray) -> np.ndarray | None:
        """In the rollout worker: acquires a free buffer for each agent, and returns their indices, [n] int64.

        Returns None, and acquires nothing, if there are too few free buffers.
        """
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
        """In the rollout worker: hands buffers over to learners.

        buffer_indices, agent_ids: [n] int, the buffers and their agents.
        acted: [n, num_policies] bool, whether each buffer becomes pending at the learner of each policy. A
            buffer that becomes pending at no learner becomes free.

        Raises NotOwned, and changes nothing, unless these agents own the buffers.
        """
        owners = self._owner[buffer_indices]
        if not (owners == agent_ids).all():
            raise NotOwned(f"agents {agent_ids} hand over buffers {buffer_indices}, owned by {owners}")
        if self._pending[buffer_indices].any():
            raise NotOwned(
                f"agents {agent_ids} own buffers {buffer_indices}, which learners have not released"
            )
        # In this order: in between the buffers are free, but only this worker could acquire them.
        self._owner[buffer_indices] = NO_AGENT
        self._pending[buffer_indices] = np.where(acted, self.incarnations[worker_index], NOT_PENDING)

    def release(self, buffer_indices: np.ndarray, policy_id: int) -> None:
        """In a learner: releases buffers, [n] int, after copying them.

        Raises NotOwned, and changes nothing, unless they are pending at the learner of this policy.
        """
        is_pending = self._pending[buffer_indices, policy_id] != NOT_PENDING
        if not is_pending.all():
            lost = buffer_indices[~is_pending]
            raise NotOwned(f"policy {policy_id} releases buffers {lost}, which are not pending at it")
        self._pending[buffer_indices, policy_id] = NOT_PENDING

    def reclaim(self, worker_index: int) -> int:
        """In the main process: frees the buffers that a dead worker's agents owned, and returns their number.

        Must be called before the worker is restarted, since this call begins the worker's next incarnation.
        """
        own = self.topology.buffers_of(worker_index)
        owner = self._owner[own.start : own.stop]
        count = int(np.count_nonzero(owner != NO_AGENT))
        owner[:] = NO_AGENT
        self.incarnations[worker_index] += 1
        return count

    def release_lost(self, policy_id: int, incarnations: np.ndarray, tickets: Iterable[int]) -> np.ndarray:
        """In a learner: frees the buffers that dead workers handed over without sending a ticket, and returns
        their indices, [n] int64.

        incarnations: copy of `self.incarnations`, made before the learner last emptied its inbox. Workers of
            earlier incarnations were dead by then, so all tickets that they sent have been received.
        tickets: the buffers of all tickets that the learner holds.
        """
        if (incarnations == FIRST_INCARNATION).all():  # nearly always
            return np.empty(0, np.int64)
        partitions = [len(self.topology.buffers_of(index)) for index in range(len(incarnations))]
        pending = self._pending[:, policy_id]
        of_dead = np.flatnonzero((pending != NOT_PENDING) & (pending < np.repeat(incarnations, partitions)))
        lost = of_dead[~np.isin(of_dead, list(tickets))]
        self._pending[lost, policy_id] = NOT_PENDING
        return lost

    def owner_of(self, buffer: int) -> int:
        """Returns the id of the agent that owns the buffer, or NO_AGENT."""
        return int(self._owner[buffer])


def _specs(topology: Topology, layouts: Sequence[KindLayout], rnn_state_size: int) -> dict[str, ArraySpec]:
    n = topology.num_buffers
    t = topology.rollout
    specs = {
        f"obs/{kind}/{key}": ArraySpec((n, t + 1, *(box.shape or ())), box.dtype)
        for kind, layout in enumerate(layouts)
        for key, box in layout.observation_space.spaces.items()
    }
    specs["outputs"] = ArraySpec((n, t, max(layout.size for layout in layouts)), np.float32)
    specs["versions"] = ArraySpec((n, t), np.int32)
    specs["generations"] = ArraySpec((n, t), np.int32)
    specs["rewards"] = ArraySpec((n, t), np.float32)
    specs["costs"] = ArraySpec((n, t if topology.has_costs else 0), np.float32)
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

    Both policy workers and learners call this function, so that their recurrent states agree.

    obs: arrays by key, equal in their first `num_axes` axes. Returns a bool array over these axes: True where
    all numbers were finite.
    """
    shape = next(iter(obs.values())).shape[:num_axes]
    finite = np.ones(shape, bool)
    for array in obs.values():
        if array.dtype.kind == "f":
            good = np.isfinite(array)
            if good.all():  # nearly always; what follows takes several times as long
                continue
            finite &= good.reshape(*shape, -1).all(axis=-1)
            array[~good] = 0.0
    return finite
