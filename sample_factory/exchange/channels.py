"""The queues and shared memory that connect the processes of a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.queues import LocalQueue, Queue
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays

NO_ENV = -1  # no env is being called
NO_VERSION = -1


class Channels(NamedTuple):
    """All queues and shared memory of a run; messages.py says who sends what."""

    inboxes: Sequence[Queue]  # one per rollout worker, or per inline sampler: RolloutMessage
    requests: Sequence[Queue]  # one per policy, read by all its policy workers: PolicyRequest
    learners: Sequence[Queue]  # one per policy: LearnerMessage
    reports: Queue  # to the main process: Report
    weights: Sequence[PolicyWeights]  # one per policy
    progress: SharedArrays  # from make_progress
    # By policy, with --learners_per_policy: one per learner but the first, see JoinGroup.
    other_learners: Mapping[int, Sequence[Queue]] = {}


def make_progress(topology: Topology) -> SharedArrays:
    """Returns small arrays by which processes observe each other.

    iterations [num_policies] int64: iterations of training in this run, written by the learners.
    stepping [num_workers] int64: index of the env that a rollout worker steps, `in_close(index)` while it
        closes it, or NO_ENV, written by it.
    copied [num_policies, learners_per_policy - 1] int64: shares of batches that each learner but the first
        has copied out of the trajectory buffers, written by it.
    diverged [num_policies] int64: newest version that the policy has left behind by more than the threshold
        of --weights_sync=divergence, or NO_VERSION, written by the learners.
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
    """Returns the value of `stepping` for an env that is being closed; its own inverse."""
    return NO_ENV - 1 - env_index


def with_local_queues(channels: Channels, topology: Topology) -> Channels:
    """Returns channels for a process that contains both rollout and policy workers: these two need no queues
    between processes."""
    return channels._replace(
        inboxes=[LocalQueue(waits=False) for _ in range(topology.num_workers)],
        requests=[LocalQueue(waits=False) for _ in range(topology.num_policies)],
    )
