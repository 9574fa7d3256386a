"""The queues and shared memory that connect the processes of a run."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.messages import (
    LearnerMessage,
    NewShaping,
    NewTrainingInfo,
    Opponents,
    RolloutMessage,
)
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NO_ENV = -1  # no env is being called
NO_VERSION = -1
WAIT_SECONDS = 5.0  # for room in a queue: a learner reads messages even while it trains, a dead one does not


class Channels(NamedTuple):
    """Holds all queues and shared memory by which the processes of a run communicate.

    inboxes: of RolloutMessages, one queue per rollout worker or inline sampler.
    requests: of PolicyRequests, one queue per policy, which all policy workers of the policy read.
    learners: of LearnerMessages, one queue per policy.
    reports: queue to the main process, of Reports and lists of Reports.
    weights: published weights, by policy. progress: result of `make_progress`.
    other_learners: policy id -> queues of all learners of the policy but the first (--learners_per_policy).
    """

    inboxes: Sequence[Queue]
    requests: Sequence[Queue]
    learners: Sequence[Queue]
    reports: Queue
    weights: Sequence[PolicyWeights]
    progress: SharedArrays
    other_learners: Mapping[int, Sequence[Queue]] = {}


def make_progress(topology: Topology) -> SharedArrays:
    """Creates the shared int64 arrays by which processes observe the progress of other processes.

    iterations [num_policies]: iterations of training in this run; written by the learners.
    rollouts [num_workers, num_splits]: rollouts that each split has handed over with their tickets; written
        by the rollout worker.
    stepping [num_workers]: index of the env that a rollout worker steps, `in_close(index)` while it closes
        the env, NO_ENV otherwise; written by the rollout worker.
    starts [num_workers]: checksum of the first observations of a worker's batched simulator, 0 before it is
        reset; written by the rollout worker.
    copied [num_policies, learners_per_policy - 1]: shares of batches that each learner but the first has
        copied out of the trajectory buffers; written by these learners.
    diverged [num_policies]: newest version from which the policy differs by more than the threshold of
        --weights_sync=divergence, or NO_VERSION; written by the learners.
    """
    progress = SharedArrays(
        {
            "iterations": ArraySpec((topology.num_policies,), np.int64),
            "rollouts": ArraySpec((topology.num_workers, topology.num_splits), np.int64),
            "stepping": ArraySpec((topology.num_workers,), np.int64),
            "starts": ArraySpec((topology.num_workers,), np.int64),
            "copied": ArraySpec((topology.num_policies, max(0, topology.learners_per_policy - 1)), np.int64),
            "diverged": ArraySpec((topology.num_policies,), np.int64),
        }
    )
    progress["diverged"][:] = NO_VERSION
    return progress


def in_close(env_index: int) -> int:
    """Returns the number that stands in `stepping` (see `make_progress`) while env `env_index` is being
    closed, so that it differs from the number while the env steps. The function is its own inverse."""
    return NO_ENV - 1 - env_index


def send(inbox: Queue, message: LearnerMessage) -> bool:
    """In the main process: sends a message to a learner. Returns False, and logs an error, if the learner's
    inbox stays full for WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    is_sent = inbox.put(message, keep_waiting=lambda: time.monotonic() < deadline)
    if not is_sent:
        log.error("Could not send %s: the queue stayed full for %g s", type(message).__name__, WAIT_SECONDS)
    return is_sent


class LatestMessages:
    """Sends the newest message of each type about each policy to all rollout workers and inline samplers.
    Used in the main process, and in the process that supervises a node on another machine.

    A message replaces earlier messages of its type about its policy. `send` never waits for a full inbox: a
    message for which there is no room is sent by a later call.
    """

    def __init__(self, inboxes: Sequence[Queue]):
        self._inboxes = inboxes
        self._latest: dict[tuple[type, int], RolloutMessage] = {}
        # By inbox: the unsent messages, in the order of the updates.
        self._unsent: list[dict[tuple[type, int], None]] = [{} for _ in inboxes]

    def update(self, message: NewShaping | NewTrainingInfo | Opponents) -> None:
        """Stores a message for the next `send`."""
        key = type(message), message.policy_id
        self._latest[key] = message
        for unsent in self._unsent:
            unsent[key] = None

    def send_again(self, index: int) -> None:
        """Marks all messages as unsent for the inbox `index`, whose process is about to be replaced."""
        self._unsent[index] = dict.fromkeys(self._latest)

    def send(self) -> None:
        """Sends the unsent messages, as many as fit into each inbox."""
        for inbox, unsent in zip(self._inboxes, self._unsent):
            for key in list(unsent):
                if not inbox.put(self._latest[key], keep_waiting=lambda: False):
                    break
                del unsent[key]
