"""The queues and shared memory that connect the processes of a run."""

from typing import NamedTuple, Sequence

from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.runtime.queues import LocalQueue, Queue
from sample_factory.runtime.shared_arrays import SharedArrays

AnyQueue = Queue | LocalQueue


class Channels(NamedTuple):
    """Who may write to what stands in messages.py."""

    inboxes: Sequence[AnyQueue]  # one per rollout worker: ActionsReady
    requests: Sequence[AnyQueue]  # one per policy, read by all its policy workers: PolicyRequest
    learners: Sequence[AnyQueue]  # one per policy: Trajectories, SaveRequest
    reports: AnyQueue  # to the main process: reports
    weights: Sequence[PolicyWeights]  # one per policy
    progress: SharedArrays  # "iterations" [num_policies] int64: of training, in this run; by the learners


def with_local_queues(channels: Channels, topology: Topology) -> Channels:
    """The same for a process that holds both rollout and policy workers: these two need no real queues."""
    return channels._replace(
        inboxes=[LocalQueue(waits=False) for _ in range(topology.num_workers)],
        requests=[LocalQueue(waits=False) for _ in range(topology.num_policies)],
    )
