"""On the learner's machine: the process that starts nodes and writes their trajectories to buffers."""

import functools
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ray

from sample_factory.cluster.node import NodeFailed, Pulled
from sample_factory.cluster.ray_cluster import Machine, NodeDied, NodeLink, NodeUnavailable, RayCluster
from sample_factory.cluster.traffic import THREADS, Packed, Traffic, are_weights_due, unpack
from sample_factory.config.sampling_flags import ClusterFlags
from sample_factory.exchange.channels import Channels, LatestMessages
from sample_factory.exchange.messages import (
    ComponentReady,
    Incident,
    Report,
    RolloutMessage,
    Trajectories,
)
from sample_factory.exchange.policy_weights import NOTHING_PUBLISHED, Stamp
from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import LocalQueue, Queue

WAIT_SECONDS = 0.02
SEARCH_SECONDS = 2.0  # between searches for machines that have joined
RETRY_SECONDS = 30.0  # before the next attempt on a machine where a node has failed or delivered nothing
SILENT_SECONDS = 30.0  # without an answer, before a warning
REPORT_SECONDS = 5.0
STOP_SECONDS = 25.0


class Place:
    """Keeps the connection to one of the --num_nodes nodes, and the messages to send to it. When the node
    dies, the place is kept for the next node.

    link: connection to the node; None while no machine is free for a node.
    """

    def __init__(self, number: int, inbox: Queue):
        """Makes a place without a node. `number`: number, from 1, that each node in this place gets.
        inbox: queue of messages from the main process to rollout workers, here those of the node."""
        self.number = number
        self.link: NodeLink | None = None
        self._inbox = inbox
        self._outbox = LocalQueue()
        self._messages = LatestMessages([self._outbox])

    def connect(self, link: NodeLink) -> None:
        """Assigns a new node to this place. The last message of each type and policy will be sent to the
        node."""
        self.link = link
        self.send_again()

    def send_again(self) -> None:
        """Marks the last message of each type and policy as not sent, for a node that may lack them."""
        self._messages.send_again(0)

    def take_messages(self) -> list[RolloutMessage]:
        """Returns the messages that were not sent to the node yet, and marks them as sent."""
        self._messages.send()
        return self._outbox.get_many(0.0)

    def receive(self) -> None:
        """Reads the messages in the inbox; also called without a node, so that the inbox is never full."""
        for message in self._inbox.get_many(timeout=0.0):
            self._messages.update(message)


class Ingest:
    """In a child on the learner's machine: starts a node on each free machine, pulls trajectories from the
    nodes and stores them in buffers.

    Back-pressure: a node is called again only after its last trajectories were stored in free buffers.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        flags: ClusterFlags,
        experiment_dir: Path,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        """Connects to the Ray cluster, or starts Ray on this machine.

        plan: plan of the samplers on the learner's machine, from which the plans of the nodes are made.
        Raises CommandFailed if the cluster cannot be reached.
        """
        self._plan = plan
        self._flags = flags
        self._buffers = buffers
        self._channels = channels
        self._context = context
        self._partition = buffers.topology.num_workers
        self._newest: dict[int, tuple[Stamp, Any]] = {}  # weights in Ray, by policy: stamp and reference
        self._traffic = Traffic()
        self._threads = ThreadPoolExecutor(THREADS)
        self._time_to_report = Every(REPORT_SECONDS)
        self._time_to_search = Every(SEARCH_SECONDS, at_first=True)
        self._retry_at: dict[str, float] = {}  # id of a machine -> time.monotonic() of the next start
        self._has_received = False  # trajectories of any node
        self._num_missing = 0
        inboxes = channels.inboxes[len(channels.inboxes) - plan.topology.num_nodes :]
        self._places = [Place(number, inbox) for number, inbox in enumerate(inboxes, start=1)]
        self._cluster = RayCluster(flags.ray_address, experiment_dir)

    def run(self) -> None:
        """Pulls trajectories from the nodes until asked to stop, then stops the nodes."""
        try:
            while self._context.keep_going():
                self._context.beat()
                self.step()
        except NodeFailed as failed:
            log.warning("%s; all nodes are stopped, and the run ends", failed)
            raise
        finally:
            self._stop()

    def step(self) -> None:
        """Starts the next calls of nodes, and handles the results that arrive within WAIT_SECONDS."""
        if self._time_to_search():
            self._search_machines()
            self._warn_of_silence()
        for place in self._places:
            place.receive()
        connected = [(place, place.link) for place in self._places if place.link is not None]
        for place, link in connected:
            self._store(link)
            self._call(place, link)
        calls = [call for _, link in connected for call in link.calls]
        if calls:
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=WAIT_SECONDS)
            for place, link in connected:
                self._receive(place, link, [call for call in link.calls if call in ready])
        else:
            self._context.stopping.wait(WAIT_SECONDS)
        if self._time_to_report():
            self._report([self._traffic.take_report()])

    def _search_machines(self) -> None:
        """Starts nodes on machines without a node, as long as there are places without a node."""
        free_places = [place for place in self._places if place.link is None]
        in_use = {place.link.machine.ray_id for place in self._places if place.link is not None}
        machines = self._cluster.free_machines(in_use) if free_places else []
        if self._cluster.is_local:
            machines *= len(free_places)
        num_missing = max(0, len(free_places) - len(machines))
        now = time.monotonic()
        machines = [machine for machine in machines if now >= self._retry_at.get(machine.ray_id, 0.0)]
        for place, machine in zip(free_places, machines):
            self._start_node(place, machine)
        if num_missing > self._num_missing:
            log.warning(
                "%d of %d other machines are not connected; they are used when they join Ray "
                "(ray start --address=...)",
                num_missing,
                self._plan.topology.num_nodes,
            )
        self._num_missing = num_missing

    def _start_node(self, place: Place, machine: Machine) -> None:
        has_machine = not self._cluster.is_local
        in_use = self._cluster.resources_in_use(machine) if has_machine else ""
        link = NodeLink(place.number, self._plan, self._flags, machine, has_machine)
        if in_use:
            log.warning("%s waits for its whole machine: other jobs of Ray use %s", link.name, in_use)
        place.connect(link)

    def _warn_of_silence(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.link is not None and now - place.link.silent_since > SILENT_SECONDS:
                log.warning("%s has not answered for %.0f s", place.link.name, SILENT_SECONDS)
                place.link.silent_since = now

    def _call(self, place: Place, link: NodeLink) -> None:
        while link.may_pull:
            link.pull(place.take_messages())
        if link.may_update:
            weights = self._due_weights(link)
            if weights:
                link.update(weights)

    def _due_weights(self, link: NodeLink) -> dict[int, tuple[Stamp, Any]]:
        """Returns the weights to send to a node now: policy id -> (version and generation, reference to the
        weights in Ray's object store). Counts the decisions for the summaries."""
        max_policy_lag = self._plan.flags.max_policy_lag
        due = {}
        for policy_id, channel in enumerate(self._channels.weights):
            newest = channel.newest
            held = link.held.get(policy_id)
            if newest.version == NOTHING_PUBLISHED or newest == held:
                continue
            diverged = int(self._channels.progress["diverged"][policy_id])
            is_due = are_weights_due(self._flags, max_policy_lag, held, newest, diverged)
            if is_due:
                due[policy_id] = self._put(policy_id)
            if is_due or link.offered.get(policy_id) != newest:
                link.offered[policy_id] = newest
                self._traffic.offered(channel.slot_bytes, newest, held, is_due)
        return due

    def _put(self, policy_id: int) -> tuple[Stamp, Any]:
        """Puts a policy's newest weights into Ray's object store, once for all nodes.
        Returns the version and generation of the weights, and the reference in the object store."""
        channel = self._channels.weights[policy_id]
        if policy_id not in self._newest or self._newest[policy_id][0] != channel.newest:
            slot = np.empty(channel.slot_bytes, np.uint8)
            stamp = channel.fetch(functools.partial(np.copyto, slot))
            self._newest[policy_id] = stamp, ray.put(slot)
        return self._newest[policy_id]

    def _receive(self, place: Place, link: NodeLink, ended: list[Any]) -> None:
        """Handles the results of calls that have ended; disconnects a node that has died or failed, so that
        another node can take its place.

        Raises NodeFailed if a node has failed before any node has delivered trajectories: most likely, every
        node would fail. Later, the failure of one node does not end the run.
        """
        lost: NodeDied | NodeFailed | None = None
        for call in ended:
            was_reachable = link.is_reachable
            try:
                self._take(link, link.take(call))
            except NodeUnavailable as unavailable:
                if was_reachable:
                    log.warning("%s; the results of its calls are lost", unavailable)
                place.send_again()
            except (NodeDied, NodeFailed) as error:
                lost = error
        if lost is None:
            return
        if isinstance(lost, NodeFailed) and not self._has_received:
            raise lost
        place.link = None
        link.close()
        if isinstance(lost, NodeFailed) or not link.has_answered:
            self._retry_at[link.machine.ray_id] = time.monotonic() + RETRY_SECONDS
        text = f"{lost}; it is replaced when its machine or another one is free"
        self._report([Incident("node_restarts", text)])

    def _take(self, link: NodeLink, pulled: Pulled | None) -> None:
        if pulled is None:
            return
        self._report(pulled.reports)
        if pulled.packed and not link.has_answered:
            link.has_answered = self._has_received = True
            self._report([ComponentReady("node", f"{link.name}: its first trajectories have arrived")])
        link.unstored += pulled.packed

    def _report(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._channels.reports.put(report, self._context.keep_going)

    def _store(self, link: NodeLink) -> None:
        """Writes trajectories of a node to free buffers, and sends tickets for them to the learners.
        Trajectories without free buffers stay in `link.unstored`."""
        parts: list[tuple[Packed, np.ndarray]] = []
        while link.unstored:
            indices = self._buffers.acquire(self._partition, self._owners(link.unstored[0]))
            if indices is None:
                break
            parts.append((link.unstored.pop(0), indices))
        sizes = self._threads.map(lambda part: unpack(self._buffers, *part), parts)
        for (packed, indices), size in zip(parts, sizes):
            self._traffic.received(packed, size)
            acted = np.zeros((len(indices), self._buffers.topology.num_policies), bool)
            acted[:, packed.policy_id] = True
            self._buffers.hand_over(self._partition, indices, self._owners(packed), acted)
            tickets = Trajectories(indices.tolist())
            self._channels.learners[packed.policy_id].put(tickets, self._context.keep_going)

    def _owners(self, packed: Packed) -> np.ndarray:
        """Returns who owns the buffers of n trajectories from a node: [n] int64, an agent id that no agent of
        this machine has."""
        return np.full(packed.num_trajectories, self._buffers.topology.num_agents)

    def _stop(self) -> None:
        links = [place.link for place in self._places if place.link is not None]
        try:
            stopping = [link.ask_to_stop() for link in links if link.is_running]
            if stopping:
                ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS)
            for link in links:
                link.close()
        finally:
            self._cluster.close()
