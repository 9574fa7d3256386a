"""The queues and shared memory that connect the processes of a run."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.messages import LearnerMessage, RolloutMessage
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NO_ENV = -1  # no env is being called
NO_VERSION = -1
SEND_SECONDS = 2.0  # between messages of a limited LatestSender
WAIT_SECONDS = 5.0  # for room in a queue: a learner reads messages even while it trains, a dead one does not


class Channels(NamedTuple):
    """All queues and shared memory of a run; see messages.py for who sends what."""

    inboxes: Sequence[Queue]  # RolloutMessage; one queue per rollout worker or inline sampler
    requests: Sequence[Queue]  # PolicyRequest; one queue per policy, read by all its policy workers
    learners: Sequence[Queue]  # LearnerMessage; one queue per policy
    reports: Queue  # Report or a list of reports, to the main process
    weights: Sequence[PolicyWeights]  # one per policy
    progress: SharedArrays  # from make_progress
    # By policy, with --learners_per_policy: a queue for each learner but the first, see JoinGroup.
    other_learners: Mapping[int, Sequence[Queue]] = {}


def make_progress(topology: Topology) -> SharedArrays:
    """Returns small arrays by which processes observe each other, int64.

    iterations [num_policies]: iterations of training in this run; written by the learners.
    stepping [num_workers]: index of the env that a rollout worker steps, `in_close(index)` while it closes
        the env, NO_ENV otherwise; written by the rollout worker.
    copied [num_policies, learners_per_policy - 1]: shares of batches that each learner but the first has
        copied out of the trajectory buffers; written by these learners.
    diverged [num_policies]: newest version from which the policy differs by more than the threshold of
        --weights_sync=divergence, or NO_VERSION; written by the learners.
    """
    progress = SharedArrays(
        {
            "iterations": ArraySpec((topology.num_policies,), np.int64),
            "stepping": ArraySpec((topology.num_workers,), np.int64),
            "copied": ArraySpec((topology.num_policies, max(0, topology.learners_per_policy - 1)), np.int64),
            "diverged": ArraySpec((topology.num_policies,), np.int64),
        }
    )
    progress["diverged"][:] = NO_VERSION
    return progress


def in_close(env_index: int) -> int:
    """Returns the value of `stepping` while an env is being closed. The function is its own inverse."""
    return NO_ENV - 1 - env_index


def send(inbox: Queue, message: LearnerMessage | RolloutMessage) -> bool:
    """In the main process: returns whether there was room for the message within WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    is_sent = inbox.put(message, keep_waiting=lambda: time.monotonic() < deadline)
    if not is_sent:
        log.error("Could not send %s: the queue stayed full for %g s", type(message).__name__, WAIT_SECONDS)
    return is_sent


class LatestSender:
    """In the main process: sends the present state of each policy to all rollout workers and inline samplers.

    A message contains the whole state of one policy, so only the newest one matters. The main process never
    waits for a full inbox: it sends that message later.
    """

    def __init__(
        self,
        message_about: Callable[[int], RolloutMessage],
        num_policies: int,
        inboxes: Sequence[Queue],
        is_limited: bool,
    ):
        """message_about: returns the message with the state of a policy.
        is_limited: send changes at most once per SEND_SECONDS; otherwise at every call.
        """
        self._message_about = message_about
        self._inboxes = inboxes
        self._policies = range(num_policies)
        self._unsent: list[set[int]] = [set() for _ in inboxes]  # policies, by inbox
        self._is_limited = is_limited
        self._time_to_send = Every(SEND_SECONDS, at_first=True)

    def send_all(self, index: int) -> None:
        """Sends the state of all policies to inbox `index`; its process is about to start."""
        self._unsent[index] = set(self._policies)
        self._send(index)

    def send_changes(self, changed: Set[int]) -> None:
        """Sends changed states to all inboxes. changed: the policies whose state has, since the last call."""
        for unsent in self._unsent:
            unsent |= changed
        if any(self._unsent) and (not self._is_limited or self._time_to_send()):
            for index in range(len(self._inboxes)):
                self._send(index)

    def _send(self, index: int) -> None:
        unsent = self._unsent[index]
        for policy_id in sorted(unsent):
            if not self._inboxes[index].put(self._message_about(policy_id), keep_waiting=lambda: False):
                return
            unsent.remove(policy_id)
