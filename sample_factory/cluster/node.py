"""The workers of one node: rollout and policy workers with their own buffers, and no learner."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import ray

from sample_factory.cluster.traffic import THREADS, Packed, pack
from sample_factory.config import VERSION
from sample_factory.config.sampling_flags import ClusterFlags
from sample_factory.exchange.channels import LatestMessages
from sample_factory.exchange.messages import (
    ComponentReady,
    Incident,
    Report,
    Trajectories,
    reports_in,
)
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.exchange.topology import TRAJECTORIES_IN_A_PART
from sample_factory.launch.arrangement import num_inline_samplers
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.runtime import cpu
from sample_factory.runtime.failures import Explained, Failure
from sample_factory.runtime.log import log, setup_logging
from sample_factory.runtime.supervisor import StopSignals

MAX_TRAJECTORIES = 64  # of a policy in one answer
GATHER_SECONDS = 0.1  # longest wait for a whole part: a call takes milliseconds, so few should be made
PULL_SECONDS = 0.5  # longest wait for the first trajectory
STOP_SECONDS = 20.0
SEEDS_OF_A_NODE = 100_003  # distance between the seeds of two nodes
POLL_SECONDS = 0.01
MAX_MESSAGES = 1000  # of a policy, received in one turn


class NodeFailed(Explained, RuntimeError):
    """Raised if the workers of a node cannot start, or have failed and are not restarted."""


class Pulled(NamedTuple):
    """Result of `Node.pull`: trajectories and reports of the node's workers since the previous call."""

    packed: list[Packed]
    reports: list[Report]


class Node:
    """In the process of a node, a Ray actor: samples for a learner on another machine. Starts rollout and
    policy workers, returns their trajectories by `pull`, and gets new weights by `update`.

    `pull`, `update` and `stop` are each called by a thread of their own; a fourth thread supervises the
    workers. Only `pull` touches the tickets of full buffers.
    """

    def __init__(self, number: int, plan: SamplingPlan, flags: ClusterFlags, package_version: str):
        """Starts the workers of the node. Raises NodeFailed if another version of this package is installed
        here.

        number: number of the node, from 1. plan: plan of the samplers on the learner's machine.
        package_version: version of this package on the learner's machine.
        """
        if package_version != VERSION:
            raise NodeFailed(
                f"sample-factory {VERSION} is installed there, and {package_version} on the learner's "
                "machine; install the same version"
            )
        setup_logging(f"node_{number}")
        cpu.raise_open_files_limit()
        self._name = f"node {number}"
        self._plan = plan_of_node(number, plan, flags)
        self._resources = allocate(self._plan)
        num_policies = self._plan.topology.num_policies
        self._tickets: dict[int, list[int]] = {policy_id: [] for policy_id in range(num_policies)}
        self._threads = ThreadPoolExecutor(THREADS)
        self._loop = NodeLoop(self._resources)
        self._failures: Sequence[Failure] | None = None  # once the workers have ended
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._supervisor.start()

    def _supervise(self) -> None:
        """In the supervising thread: runs the workers until `stop`, or until they fail for good."""
        try:
            self._failures = ProcessRun(self._plan, self._resources).run(self._loop, StopSignals())
        except BaseException as error:  # `pull` raises it
            self._failures = [Failure.of(error, "supervisor")]
        for failure in self._failures:
            log.error("%s\n%s", failure, failure.traceback)

    def update(self, weights: Mapping[int, tuple[Stamp, Any]]) -> None:
        """Waits for new weights to arrive, and publishes them to the policy workers of this node. Meanwhile,
        the node samples with its present weights.

        weights: policy id -> (stamp, Ray's reference to an array uint8).
        """
        for policy_id, (stamp, reference) in weights.items():
            self._resources.channels.weights[policy_id].publish({"slot": ray.get(reference)}, stamp)

    def pull(self, messages: Sequence[Any]) -> Pulled:
        """Returns trajectories and reports, as soon as there are enough trajectories or after PULL_SECONDS.
        messages: forwarded to the rollout workers. Raises NodeFailed if the workers have failed for good."""
        self._raise_failure()
        self._loop.forward(messages)
        self._wait_for_trajectories()
        packed = self._take_trajectories()
        return Pulled(packed, [self._named(report) for report in self._loop.take_reports()])

    def _named(self, report: Report) -> Report:
        """Returns the report, with the node's name before the text of an Incident."""
        if isinstance(report, Incident) and report.text:
            return report._replace(text=f"{self._name}: {report.text}")
        return report

    def _raise_failure(self) -> None:
        if self._failures:
            raise NodeFailed(str(self._failures[0])) from self._failures[0]

    def _wait_for_trajectories(self) -> None:
        """Waits until TRAJECTORIES_IN_A_PART trajectories are ready, which are compressed together. Returns
        earlier after GATHER_SECONDS if one is ready, after PULL_SECONDS otherwise.

        Raises NodeFailed if the workers fail for good.
        """
        began = time.monotonic()
        while (count := self._receive_tickets()) < TRAJECTORIES_IN_A_PART:
            seconds = time.monotonic() - began
            if seconds > (GATHER_SECONDS if count else PULL_SECONDS):
                return
            self._raise_failure()
            time.sleep(POLL_SECONDS)

    def _take_trajectories(self) -> list[Packed]:
        buffers = self._resources.buffers
        parts = [
            (policy_id, np.array(tickets[first : first + TRAJECTORIES_IN_A_PART]))
            for policy_id, tickets in self._tickets.items()
            for first in range(0, min(len(tickets), MAX_TRAJECTORIES), TRAJECTORIES_IN_A_PART)
        ]
        packed = list(self._threads.map(lambda part: pack(buffers, *part), parts))
        for policy_id, indices in parts:
            buffers.release(indices, policy_id)
        for tickets in self._tickets.values():
            del tickets[:MAX_TRAJECTORIES]
        return packed

    def _receive_tickets(self) -> int:
        """Receives the tickets of full buffers, and returns how many trajectories are ready."""
        buffers = self._resources.buffers
        for policy_id, tickets in self._tickets.items():
            incarnations = buffers.incarnations.copy()
            messages = self._resources.channels.learners[policy_id].get_many(0.0, MAX_MESSAGES)
            for message in messages:
                if isinstance(message, Trajectories):
                    tickets.extend(message.buffer_indices)
            if len(messages) < MAX_MESSAGES:  # the inbox was read to its end
                buffers.release_lost(policy_id, incarnations, tickets)
        return sum(map(len, self._tickets.values()))

    def stop(self) -> None:
        """Stops all workers, and waits up to STOP_SECONDS until they have ended."""
        self._loop.end()
        self._supervisor.join(STOP_SECONDS)


def plan_of_node(number: int, plan: SamplingPlan, flags: ClusterFlags) -> SamplingPlan:
    """Makes the plan of a node's workers from `plan`, the plan of the samplers on the learner's machine.

    number: number of the node, from 1; nodes differ in seeds, worker indices and env ids.
    """
    policies = {
        policy_id: policy._replace(device=_device(policy.device))
        for policy_id, policy in plan.acting.policies.items()
    }
    num_workers = flags.node_workers or cpu.num_usable_cores()
    own_flags = plan.flags
    if own_flags.inline_samplers:
        own_flags = replace(own_flags, inline_samplers=num_workers)
    own_flags = replace(own_flags, num_workers=num_workers)
    topology = plan.topology
    envs_per_worker = flags.node_envs_per_worker or topology.envs_per_worker
    # The workers and envs of the learner's machine come first, then those of each node in turn.
    first_worker = topology.num_workers + (number - 1) * num_workers
    first_env_id = (
        topology.num_workers * topology.envs_per_worker + (number - 1) * num_workers * envs_per_worker
    )
    topology = replace(
        topology,
        num_workers=num_workers,
        envs_per_split=envs_per_worker // topology.num_splits,
        # One buffer of each agent is filled, and one waits to be sent. More would only make samples older.
        buffers_per_worker=2 * envs_per_worker * topology.agents_per_env,
        num_nodes=0,
        buffers_for_nodes=0,
        learners_per_policy=0,
        num_inline_samplers=num_inline_samplers(own_flags, policies[0].device, are_separate=False),
    )
    seed = plan.seed + SEEDS_OF_A_NODE * number
    return plan._replace(
        envs=plan.envs._replace(seed=seed, first_worker=first_worker, first_env_id=first_env_id),
        acting=plan.acting._replace(seed=seed, policies=policies),
        topology=topology,
        flags=own_flags,
    )


def _device(device: str) -> str:
    """Returns the device for a node: "auto" for "gpu", since the machine of a node may have no GPU."""
    return "auto" if device == "gpu" else device


class NodeLoop(Loop):
    """In the process of a node: keeps the reports of the workers for `Node.pull`, and forwards messages from
    the learner's machine to the workers."""

    def __init__(self, resources: Resources):
        self._is_done = False
        self._reports_queue = resources.channels.reports
        self._lock = threading.Lock()  # for the next two fields: one thread pulls, another one supervises
        self._reports: list[Report] = []
        self._to_workers = LatestMessages(resources.channels.inboxes)

    @property
    def is_done(self) -> bool:
        """Whether `end` was called."""
        return self._is_done

    def end(self) -> None:
        """Makes the supervising thread stop the workers."""
        self._is_done = True

    def forward(self, messages: Sequence[Any]) -> None:
        """Sends messages to all rollout workers of the node. Sends earlier messages again to workers whose
        inbox was full."""
        with self._lock:
            for message in messages:
                self._to_workers.update(message)
            self._to_workers.send()

    def take_reports(self) -> list[Report]:
        """Returns the reports since the last call."""
        with self._lock:
            reports, self._reports = self._reports, []
        return reports

    def receive(self, timeout: float) -> None:
        """Keeps what the node's workers report within `timeout` seconds, for `take_reports`; drops the
        reports that a worker is ready."""
        reports = reports_in(self._reports_queue.get_many(timeout))
        with self._lock:
            self._reports.extend(report for report in reports if not isinstance(report, ComponentReady))

    def process_replaced(self, inbox: int, rollout_workers: Sequence[int], incident: Incident) -> None:
        """Reports the death of a worker process, and sends the last messages to the process that replaces it.

        inbox: index of the inbox that both processes read. incident: the report.
        """
        with self._lock:
            self._reports.append(incident)
            self._to_workers.send_again(inbox)
            self._to_workers.send()
