"""The workers of one node: rollout and policy workers with their own buffers, and no learner."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sample_factory.cluster.packing import THREADS, Packed, pack
from sample_factory.cluster.ray_cluster import NodeFailed
from sample_factory.config import VERSION
from sample_factory.config.sampling_flags import ClusterFlags
from sample_factory.exchange.messages import (
    ComponentReady,
    Incident,
    Report,
    Trajectories,
    reports_in,
)
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import num_inline_samplers
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate
from sample_factory.mainloop.main_loop import DeadProcess, Loop, Resources
from sample_factory.mainloop.subscribers import Outbox
from sample_factory.runtime import cpu
from sample_factory.runtime.failures import ChildFailed
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.supervisor import StopSignals

log = logging.getLogger("sample_factory")

MAX_TRAJECTORIES = 64  # of a policy in one answer
MIN_TRAJECTORIES = 16  # fewer are returned only after GATHER_SECONDS, since a call takes milliseconds
GATHER_SECONDS = 0.1
PULL_SECONDS = 0.5  # longest wait for the first trajectory
STOP_SECONDS = 20.0
SEEDS_OF_A_NODE = 100_003  # the seeds of its envs begin that far from those of the node before
POLL_SECONDS = 0.01
MAX_MESSAGES = 1000  # of a policy in one turn


class NodePlan(NamedTuple):
    """Everything that a node needs to know. number: 1 for the first node beside the learner's machine."""

    number: int
    run: RunPlan
    package_version: str = VERSION


class Pulled(NamedTuple):
    """Answer of a node: what its workers have produced since the last one."""

    packed: list[Packed]
    reports: list[Report]


# Returns the weights, uint8, of a reference.
Fetch = Callable[[Any], np.ndarray]


class Node:
    """In the process of a node: starts its workers, and answers `pull` and `update`.

    One thread calls `pull`, which owns the tickets, one `update`, one `stop`; another one supervises the
    workers.
    """

    def __init__(self, plan: NodePlan, fetch: Fetch):
        """fetch: waits for weights and returns them.

        Raises NodeFailed if another version of this package is installed here.
        """
        if plan.package_version != VERSION:
            raise NodeFailed(
                f"sample-factory {VERSION} is installed there, and {plan.package_version} on the learner's "
                "machine; install the same version"
            )
        setup_logging(f"node_{plan.number}")
        cpu.raise_open_files_limit()
        self._name = f"node {plan.number}"
        self._fetch = fetch
        self._plan = plan_of_node(plan)
        self._resources = allocate(self._plan)
        num_policies = self._plan.topology.num_policies
        self._tickets: dict[int, list[int]] = {policy_id: [] for policy_id in range(num_policies)}
        self._threads = ThreadPoolExecutor(THREADS)
        self._loop = NodeLoop(self._resources)
        self._failures: Sequence[BaseException] | None = None  # once the workers have ended
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._supervisor.start()

    def _supervise(self) -> None:
        """Body of the supervising thread."""
        try:
            self._failures = ProcessRun(self._plan, self._resources).run(self._loop, StopSignals())
        except BaseException as error:  # `pull` raises it
            self._failures = [error]

    def update(self, weights: Mapping[int, tuple[Stamp, Any]]) -> None:
        """Publishes new weights to the policy workers of this node.

        weights: by policy, the stamp and a reference for `fetch`. They may take long to arrive; meanwhile the
        node samples with those that it has.
        """
        for policy_id, (stamp, reference) in weights.items():
            self._resources.channels.weights[policy_id].publish({"slot": self._fetch(reference)}, stamp)

    def pull(self, messages: Sequence[Any]) -> Pulled:
        """Returns trajectories, as soon as there are enough, and reports.

        messages: for the rollout workers. Raises NodeFailed.
        """
        self._raise_failure()
        for message in messages:
            self._loop.forward(message)
        self._wait_for_trajectories()
        packed = self._take_trajectories()
        return Pulled(packed, [self._named(report) for report in self._loop.take_reports()])

    def _named(self, report: Report) -> Report:
        """Returns the report with the name of this node in it, if it is one for the log."""
        if isinstance(report, Incident) and report.text:
            return report._replace(text=f"{self._name}: {report.text}")
        return report

    def _raise_failure(self) -> None:
        if self._failures:
            first = self._failures[0]
            name = "" if isinstance(first, ChildFailed) else f"{type(first).__name__}: "
            raise NodeFailed(f"{name}{first}") from first

    def _wait_for_trajectories(self) -> None:
        """Waits for MIN_TRAJECTORIES, GATHER_SECONDS for as many as there are, PULL_SECONDS for one."""
        began = time.monotonic()
        while (count := self._count_tickets()) < MIN_TRAJECTORIES:
            seconds = time.monotonic() - began
            if seconds > (GATHER_SECONDS if count else PULL_SECONDS):
                return
            self._raise_failure()
            time.sleep(POLL_SECONDS)

    def _count_tickets(self) -> int:
        for policy_id in self._tickets:
            self._receive_tickets(policy_id)
        return sum(map(len, self._tickets.values()))

    def _take_trajectories(self) -> list[Packed]:
        buffers = self._resources.buffers
        parts = [
            (policy_id, np.array(tickets[first : first + MIN_TRAJECTORIES]))
            for policy_id, tickets in self._tickets.items()
            for first in range(0, min(len(tickets), MAX_TRAJECTORIES), MIN_TRAJECTORIES)
        ]
        packed = list(self._threads.map(lambda part: pack(buffers, *part), parts))
        for policy_id, indices in parts:
            buffers.release(indices, policy_id)
        for tickets in self._tickets.values():
            del tickets[:MAX_TRAJECTORIES]
        return packed

    def _receive_tickets(self, policy_id: int) -> None:
        buffers = self._resources.buffers
        tickets = self._tickets[policy_id]
        incarnations = buffers.incarnations.copy()
        messages = self._resources.channels.learners[policy_id].get_many(0.0, MAX_MESSAGES)
        for message in messages:
            if isinstance(message, Trajectories):
                tickets.extend(message.buffer_indices)
        if len(messages) < MAX_MESSAGES:  # the inbox was read to its end
            buffers.release_lost(policy_id, incarnations, tickets)

    def stop(self) -> None:
        """Stops all workers."""
        self._loop.end()
        self._supervisor.join(STOP_SECONDS)


def plan_of_node(plan: NodePlan) -> RunPlan:
    """Returns the plan of the workers of this node alone, without a learner."""
    run = plan.run
    flags = run.config.cluster
    sampling = run.config.sampling
    num_workers = flags.node_workers or cpu.num_usable_cores()
    config = replace(
        run.config,
        run=replace(run.config.run, device=_device(run.config.run.device)),
        sampling=replace(
            sampling,
            num_workers=num_workers,
            num_envs_per_worker=flags.node_envs_per_worker or sampling.envs_per_worker,
            inline_samplers=num_workers if sampling.inline_samplers else sampling.inline_samplers,
            learners_per_policy=1,
        ),
        cluster=ClusterFlags(),
    )
    topology = make_topology(config, run.info, num_inline_samplers=num_inline_samplers(config))
    topology = replace(
        topology,
        # To fill, and as many that wait to be sent: no batch is collected here, and what waits gets old.
        buffers_per_worker=2 * topology.agents_per_worker,
        learners_per_policy=0,
    )
    return run._replace(
        config=config,
        topology=topology,
        policies=tuple(policy._replace(device=_device(policy.device)) for policy in run.policies),
        seed=run.seed + SEEDS_OF_A_NODE * plan.number,
    )


def _device(device: str) -> str:
    """Returns --device for a node: the machine may have no GPU where that of the learner has one."""
    return "auto" if device == "gpu" else device


class NodeLoop(Loop):
    """A `Loop`: keeps the reports of the workers for the learner's machine, and sends them its messages."""

    def __init__(self, resources: Resources):
        self._is_done = False
        self._reports_queue = resources.channels.reports
        self._outbox = Outbox(resources.channels)
        self._lock = threading.Lock()  # of the two following: one thread pulls, another one supervises
        self._reports: list[Report] = []
        self._latest: dict[tuple[type, int], Any] = {}  # messages for a worker that replaces a dead one

    @property
    def is_done(self) -> bool:
        """Whether `end` was called."""
        return self._is_done

    def end(self) -> None:
        """Ends the run of this node."""
        self._is_done = True

    def forward(self, message: Any) -> None:
        """Sends a message to all rollout workers."""
        with self._lock:
            self._latest[type(message), message.policy_id] = message
        self._outbox.send_to_all_rollout_workers(message)

    def take_reports(self) -> list[Report]:
        """Returns the reports since the last call."""
        with self._lock:
            reports, self._reports = self._reports, []
        return reports

    def receive(self, timeout: float) -> None:
        """Keeps the reports that arrive within `timeout` seconds."""
        reports = reports_in(self._reports_queue.get_many(timeout))
        with self._lock:
            self._reports.extend(report for report in reports if not isinstance(report, ComponentReady))

    def process_replaced(self, dead: DeadProcess) -> None:
        """Reports its death, and sends its successor what the dead one had received."""
        with self._lock:
            self._reports.append(dead.incident)
            latest = list(self._latest.values())
        for message in latest:
            self._outbox.send_to_rollout_worker(dead.inbox, message)
