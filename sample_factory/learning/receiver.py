"""The batching thread of a learner process: makes batches of tickets for the trainer thread."""

import collections
import itertools
import queue
import threading
from collections.abc import Callable

import numpy as np

from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import (
    ComponentReady,
    MilestoneRequest,
    NewSettings,
    SnapshotRequest,
    Trajectories,
)
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.batch import Batch, Batcher

Request = NewSettings | SnapshotRequest | MilestoneRequest

MAX_MESSAGES = 1000  # in one turn


class Handover:
    """Passes batches and requests from the batching thread to the trainer thread.

    It is the only object whose state both threads change. At most `max_ready_batches` batches wait in it, and
    one more while the trainer waits for a batch. This is the back-pressure: while the handover is full, no
    buffers are released, and rollout workers without a free buffer pause.
    """

    def __init__(self, max_ready_batches: int):
        self._max_ready_batches = max_ready_batches
        self._batches: queue.Queue[Batch] = queue.Queue(max_ready_batches + 1)
        self._is_awaited = False  # the trainer waits for a batch
        self._has_changed = threading.Event()  # the trainer has taken a batch, or begun to wait for one
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()

    # Called by the batching thread

    @property
    def is_full(self) -> bool:
        """Whether as many batches wait as may wait, so that none should be added now."""
        return self._batches.qsize() >= self._max_ready_batches + self._is_awaited

    def wait_for_room(self, timeout: float) -> None:
        """Blocks while the handover is full, at most `timeout` seconds."""
        self._has_changed.clear()
        if self.is_full:
            self._has_changed.wait(timeout)

    def put_batch(self, batch: Batch) -> None:
        """Adds a batch. Blocks while `max_ready_batches` + 1 batches wait. This can only happen to an
        `OtherLearner`: the first learner may send it a share of the next batch before the order to train on
        the previous one."""
        self._batches.put(batch)

    def put_request(self, request: Request) -> None:
        """Adds a request from the main process."""
        self._requests.put(request)

    # Called by the trainer thread

    def take_batch(self, timeout: float) -> Batch | None:
        """Takes the oldest batch out; returns None if there is none within `timeout` seconds."""
        self._is_awaited = timeout > 0
        self._has_changed.set()
        try:
            batch = self._batches.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return None
        finally:
            self._is_awaited = False
        self._has_changed.set()
        return batch

    def take_request(self) -> Request | None:
        """Takes the oldest request out; returns None if there is none."""
        return None if self._requests.empty() else self._requests.get()


class Receiver:
    """Receives the messages that are sent to one learner, and makes batches for its trainer thread.

    All fields belong to the batching thread; `handover` is shared with the trainer thread.
    """

    def __init__(
        self,
        policy_id: int,
        buffers: TrajectoryBuffers,
        batcher: Batcher,
        channels: Channels,
        handover: Handover,
        announce: Callable[[ComponentReady], None],
    ):
        """Prepares to receive messages; no trajectories have arrived yet. announce: called once, with a
        message for the log, when the first batch is ready."""
        self._policy_id = policy_id
        self._buffers = buffers
        self._batcher = batcher
        self._inbox = channels.learners[policy_id]
        self._other_inboxes = channels.other_learners.get(policy_id, ())  # one per learner that gets shares
        self._num_copied = channels.progress["copied"][policy_id]  # batches, by other learner
        self._handover = handover
        self._announce = announce
        self._tickets: list[int] = []  # numbers of full buffers, the oldest first
        self._shared: collections.deque[list[int]] = collections.deque()  # tickets sent to others, by batch
        self._num_forgotten = 0  # batches that are no longer in _shared
        self._is_announced = False

    def step(self, batch_size: int, timeout: float) -> bool:
        """Receives messages, and makes a batch if there are enough tickets and the trainer has room for it.

        batch_size: number of trajectories. Returns whether anything was done within `timeout` seconds.
        """
        if len(self._tickets) >= batch_size and self._handover.is_full:
            # Do not wait for messages: sampling may be blocked on these buffers.
            self._handover.wait_for_room(timeout)
            timeout = 0.0
        any_received = self.receive(timeout)
        if len(self._tickets) < batch_size or self._handover.is_full:
            return any_received
        # The oldest trajectories first: they come from the oldest policy.
        tickets = self._tickets[:batch_size]
        self._tickets = self._tickets[batch_size:]
        self._handover.put_batch(self._batcher.next_batch(self._share(tickets)))
        if not self._is_announced:
            # Tells the user that the run works: the first SGD step, and so the first figures, take seconds.
            self._is_announced = True
            text = f"policy {self._policy_id}: the first batch is ready"
            self._announce(ComponentReady("learner", text, is_detail=self._policy_id > 0))
        return True

    def _share(self, tickets: list[int]) -> list[int]:
        """Splits the tickets of a batch among all learners of the policy: sends the shares of the other
        learners, and returns this learner's share."""
        if not self._other_inboxes:
            return tickets
        num_learners = 1 + len(self._other_inboxes)
        for rank, inbox in enumerate(self._other_inboxes, start=1):
            inbox.put(Trajectories(tickets[rank::num_learners]))
        own = tickets[::num_learners]
        self._shared.append([ticket for ticket in tickets if ticket not in own])
        self._forget_copied()
        return own

    def _forget_copied(self) -> None:
        """Forgets tickets that were sent to other learners, once all of them have copied their shares of the
        batch. Until then, `_release_lost` needs these tickets, to leave their buffers alone."""
        while self._shared and self._num_forgotten < self._num_copied.min():
            self._shared.popleft()
            self._num_forgotten += 1

    def receive(self, timeout: float) -> bool:
        """Handles the messages that arrive within `timeout` seconds; returns whether there were any."""
        incarnations = self._buffers.incarnations.copy()
        messages = self._inbox.get_many(timeout, MAX_MESSAGES)
        for message in messages:
            match message:
                case Trajectories(buffer_indices):
                    self._tickets.extend(buffer_indices)
                case SnapshotRequest() | MilestoneRequest() | NewSettings():
                    self._handover.put_request(message)
        if len(messages) < MAX_MESSAGES:  # the inbox was read to its end
            self._forget_copied()
            self._release_lost(incarnations)
        return bool(messages)

    def _release_lost(self, incarnations: np.ndarray) -> None:
        """Frees the buffers that dead workers handed over without sending a ticket. incarnations: copy of the
        buffers' `incarnations`, made before the inbox was last emptied."""
        held = itertools.chain(self._tickets, *self._shared)
        self._buffers.release_lost(self._policy_id, incarnations, held)

    def discard(self) -> int | None:
        """With --sampler_only: releases all received buffers without training on them.

        Returns how many env frames of this policy they had, or None if there were no buffers.
        """
        tickets = np.array(self._tickets, np.int64)
        self._tickets = []
        if not len(tickets):
            return None
        own = self._buffers.policy_ids[tickets] == self._policy_id
        self._buffers.release(tickets, self._policy_id)
        return int(own.sum()) * self._buffers.topology.frameskip
