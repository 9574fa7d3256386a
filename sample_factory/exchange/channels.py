"""The queues and shared memory that connect the processes of a run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.queues import LocalQueue, Queue
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NO_ENV = -1


class Channels(NamedTuple):
    """Who may write to what stands in messages.py."""

    inboxes: Sequence[Queue]  # one per rollout worker: ActionsReady, NewShaping, Opponents
    requests: Sequence[Queue]  # one per policy, read by all its policy workers: PolicyRequest
    learners: Sequence[Queue]  # one per policy: LearnerMessage
    reports: Queue  # to the main process: reports
    weights: Sequence[PolicyWeights]  # one per policy
    progress: SharedArrays  # see make_progress


def make_progress(topology: Topology) -> SharedArrays:
    """iterations [num_policies] int64: of training, in this run; the learners write it.
    stepping [num_workers] int64: the env of a rollout worker that is being stepped, or NO_ENV; it writes it.
    """
    return SharedArrays(
        {
            "iterations": ArraySpec((topology.num_policies,), np.int64),
            "stepping": ArraySpec((topology.num_workers,), np.int64),
        }
    )


def with_local_queues(channels: Channels, topology: Topology) -> Channels:
    """The same for a process that holds both rollout and policy workers: these two need no real queues."""
    return channels._replace(
        inboxes=[LocalQueue(waits=False) for _ in range(topology.num_workers)],
        requests=[LocalQueue(waits=False) for _ in range(topology.num_policies)],
    )
