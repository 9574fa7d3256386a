"""On the learner's machine: the process that lets nodes sample, and writes their trajectories to buffers."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayTaskError

from sample_factory.cluster.node import Node, NodeFailed, NodePlan, Pulled
from sample_factory.cluster.packing import Unpacked, unpack, write
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import (
    ComponentReady,
    Incident,
    Report,
    Reports,
    RolloutMessage,
    Trajectories,
)
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.experiment.wiring import NodesArgs
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.local_ray import LocalRay

log = logging.getLogger("sample_factory")

PULLS_IN_FLIGHT = 2
WAIT_SECONDS = 0.02
STOP_SECONDS = 25.0


class _Actor:
    """A Node as a Ray actor."""

    def __init__(self, plan: NodePlan):
        self._node = Node(plan, lambda reference: ray.get(reference[0]))

    def pull(self, weights: dict, messages: list) -> Pulled:
        return self._node.pull(weights, messages)

    def stop(self) -> None:
        self._node.stop()


class Ingest:
    """In the child: keeps PULLS_IN_FLIGHT calls to every node running, and stores what they return.

    A node's next call is made when its trajectories have found free buffers, which is the back-pressure.
    """

    def __init__(
        self, args: NodesArgs, buffers: TrajectoryBuffers, channels: Channels, context: ChildContext
    ):
        self._args = args
        self._buffers = buffers
        self._channels = channels
        self._context = context
        self._weights: dict[int, tuple[Stamp, list]] = {}  # by policy: newest stamp and reference
        self._own_ray = _connect(args)
        first_inbox = len(channels.inboxes) - args.num_nodes
        self._nodes = [
            NodeLink(self._make_plan(index), channels.inboxes[first_inbox + index])
            for index in range(args.num_nodes)
        ]

    def _make_plan(self, index: int) -> NodePlan:
        args = self._args
        return NodePlan(index, args.config, args.family, args.probed, args.seed)

    def run(self) -> None:
        """Pulls until asked to stop, then stops the nodes."""
        try:
            while self._context.keep_going():
                self._context.beat()
                self.step()
        finally:
            self._stop()

    def step(self) -> None:
        """Handles the answers that arrive within WAIT_SECONDS, and makes the next calls."""
        self._put_weights()
        for node in self._nodes:
            self._store(node)
            if self._weights and not node.unstored:
                node.call(self._weights)
        calls = [call for node in self._nodes for call in node.calls]
        if not calls:
            self._context.stopping.wait(WAIT_SECONDS)
            return
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=WAIT_SECONDS)
        for node in self._nodes:
            for call in [call for call in node.calls if call in ready]:
                self._receive(node, call)

    def _put_weights(self) -> None:
        """Puts newly published weights into Ray's object store, once for all nodes."""
        for policy_id, channel in enumerate(self._channels.weights):
            stamp = channel.newest
            known = self._weights.get(policy_id)
            if channel.slot_bytes == 0 or (known is not None and known[0] == stamp):
                continue
            slot = np.empty(channel.slot_bytes, np.uint8)
            stamp = channel.fetch(slot)
            self._weights[policy_id] = (stamp, [ray.put(slot)])

    def _receive(self, node: "NodeLink", call: Any) -> None:
        pulled = node.result(call)
        if isinstance(pulled, Incident):
            self._report([pulled])
            return
        self._report(pulled.reports)
        if pulled.packed and not node.has_answered:
            node.has_answered = True
            self._report([ComponentReady("node", f"node {node.number}: its first trajectories have arrived")])
        node.unstored.extend(unpack(self._buffers, packed) for packed in pulled.packed)

    def _report(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._channels.reports.put(Reports([report]), self._context.keep_going)

    def _store(self, node: "NodeLink") -> None:
        """Writes trajectories of a node to its partition of the buffers, as far as there are free ones."""
        partition = self._buffers.topology.num_workers + node.number
        while node.unstored:
            trajectories = node.unstored[0]
            indices, count = self._acquire(partition, trajectories.num_trajectories)
            if indices is None:
                return
            stored, others = trajectories.split(count)
            write(self._buffers, stored, indices)
            acted = np.zeros((count, self._buffers.topology.num_policies), bool)
            acted[:, stored.policy_id] = True
            self._buffers.hand_over(indices, self._owners(partition, count), acted)
            tickets = Trajectories(indices.tolist())
            self._channels.learners[stored.policy_id].put(tickets, self._context.keep_going)
            node.unstored[0] = others
            if not others.num_trajectories:
                node.unstored.pop(0)

    def _acquire(self, partition: int, count: int) -> tuple[np.ndarray | None, int]:
        """Returns as many free buffers as there are, at most `count`, and their number; None if none."""
        while count:
            indices = self._buffers.acquire(partition, self._owners(partition, count))
            if indices is not None:
                return indices, count
            count //= 2
        return None, 0

    def _owners(self, partition: int, count: int) -> np.ndarray:
        """Ids of the agents of a node, which are no agents of this machine."""
        return np.full(count, self._buffers.topology.num_agents + partition)

    def _stop(self) -> None:
        stopping = [node.actor.stop.remote() for node in self._nodes]
        ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS)
        for node in self._nodes:
            ray.kill(node.actor)
        if self._own_ray is None:
            ray.shutdown()
        else:
            self._own_ray.close()


class NodeLink:
    """The connection to one node."""

    def __init__(self, plan: NodePlan, inbox: Any):
        """inbox: messages of the main process for the rollout workers of the node."""
        self.number = plan.number
        actor_class: Any = ray.remote(_Actor)
        self.actor: Any = actor_class.options(max_restarts=-1, num_cpus=0).remote(plan)
        self.calls: list = []
        self.unstored: list[Unpacked] = []
        self.has_answered = False  # with trajectories, since it was started
        self._inbox = inbox
        self._incarnation: float | None = None
        self._latest: dict[tuple[type, int], RolloutMessage] = {}

    def call(self, weights: dict[int, tuple[Stamp, list]]) -> None:
        """Calls the node until PULLS_IN_FLIGHT calls are running."""
        while len(self.calls) < PULLS_IN_FLIGHT:
            messages = self._inbox.get_many(timeout=0.0)
            for message in messages:
                self._latest[type(message), message.policy_id] = message
            self.calls.append(self.actor.pull.remote(weights, messages))

    def result(self, call: Any) -> Pulled | Incident:
        """Returns the result of a call that has ended; an Incident if the node is being restarted.

        Raises NodeFailed if its workers have failed for good.
        """
        self.calls.remove(call)
        try:
            pulled: Pulled = ray.get(call)
        except RayActorError as error:
            self.has_answered = False
            reason = str(error).partition("\n")[0]
            return Incident("node_restarts", f"node {self.number} died and is restarted: {reason}")
        except RayTaskError as error:
            raise NodeFailed(f"node {self.number}: {error.cause}") from None
        if self._incarnation not in (None, pulled.incarnation):
            for message in self._latest.values():
                self._inbox.put(message)
        self._incarnation = pulled.incarnation
        return pulled


def _connect(args: NodesArgs) -> LocalRay | None:
    """Connects to the cluster; without an address, starts Ray on this machine alone, and returns that.

    Raises NodeFailed if the cluster cannot be reached, CommandFailed if Ray does not start.
    """
    address = args.config.sampling.ray_address
    options: dict[str, Any] = {"logging_level": logging.WARNING}
    if address is None:
        return LocalRay("--num_nodes", args.config.experiment_dir, options)
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError) as error:
        raise NodeFailed(f"--ray_address={address}: {error}") from None
    return None
