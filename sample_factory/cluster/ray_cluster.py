"""On the learner's machine: the Ray cluster of a run, its machines, and the connection to each node."""

import logging
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sample_factory.cluster.node import Node, NodeFailed, Pulled
from sample_factory.cluster.traffic import Packed
from sample_factory.config import VERSION
from sample_factory.config.sampling_flags import ClusterFlags
from sample_factory.exchange.messages import RolloutMessage
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.runtime.local_ray import LocalRay, find_cluster

# Ray keeps what nodes log in files on their machines; what concerns the run arrives as reports.
OPTIONS: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
PULLS_IN_FLIGHT = 2
RETRY_SECONDS = 1.0  # between calls to a node that cannot be reached


class Machine(NamedTuple):
    """A machine of the cluster, which Ray calls a node.
    ray_id: Ray's id of the machine. resources: all resources by Ray's names, e.g. {"CPU": 8.0}."""

    ray_id: str
    address: str
    resources: dict[str, float]


class RayCluster:
    """Connects this process to a Ray cluster."""

    def __init__(self, ray_address: str | None, experiment_dir: Path):
        """Connects to the Ray cluster of --ray_address or RAY_ADDRESS; without one, starts Ray on this
        machine.
        Raises CommandFailed if the cluster cannot be reached, or Ray does not start."""
        self._local_ray: LocalRay | None = None
        cluster = find_cluster(ray_address)
        if cluster is None:
            self._local_ray = LocalRay("--num_nodes", experiment_dir, OPTIONS)
        else:
            cluster.connect(OPTIONS)
        self._own_id = ray.get_runtime_context().get_node_id()

    def free_machines(self, in_use: Collection[str]) -> list[Machine]:
        """Returns the machines on which a node can be started. in_use: Ray's ids of the machines with a node.

        The learner's machine is left out, unless Ray was started for this run alone: then the learner's
        machine is the only one, and may have any number of nodes.
        """
        list_nodes: Any = ray.nodes
        machines = [
            Machine(found["NodeID"], found["NodeManagerAddress"], found["Resources"])
            for found in list_nodes()
            if found["Alive"]
        ]
        if self.is_local:
            return machines
        return [machine for machine in machines if machine.ray_id not in {*in_use, self._own_id}]

    def resources_in_use(self, machine: Machine) -> str:
        """Returns how many CPUs and GPUs of a machine jobs of Ray use, e.g. "3 of 8 CPUs"; "" if none."""
        free_by_machine: Any = available_resources_per_node
        return describe_use(machine.resources, free_by_machine().get(machine.ray_id, {}))

    @property
    def is_local(self) -> bool:
        """Whether Ray was started for this run alone."""
        return self._local_ray is not None

    def close(self) -> None:
        """Disconnects from the cluster, or ends Ray if it was started for this run alone."""
        if self._local_ray is None:
            ray.shutdown()
        else:
            self._local_ray.close()


def describe_use(resources: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Returns how many CPUs and GPUs of a machine are in use, e.g. "3 of 8 CPUs"; "" if none.

    resources, free: all and free resources, Ray's name -> amount; `free` may lack a resource that is used up.
    """
    used = {name: resources.get(name, 0) - free.get(name, 0) for name in ("CPU", "GPU")}
    return " and ".join(f"{used[name]:g} of {resources[name]:g} {name}s" for name in used if used[name] > 0)


class NodeDied(Exception):
    """Raised if the process or machine of a node has ended, or Ray regards the node as lost."""


class NodeUnavailable(Exception):
    """Raised if a node cannot be reached at the moment, so that the result of a call is lost."""


class NodeLink:
    """Starts a Node as a Ray actor, and calls the node's methods. The actor is never restarted: when a node
    dies, a new NodeLink replaces this one.

    held: policy id -> stamp of the weights that the node has.
    offered: policy id -> stamp of the newest weights when they were last compared with `held`.
    unstored: trajectories that the node has returned and that are not in buffers yet.
    has_answered: whether the node has returned trajectories.
    silent_since: time.monotonic() of the node's last answer, of its start, or of the last warning about it.
    """

    def __init__(
        self, number: int, plan: SamplingPlan, flags: ClusterFlags, machine: Machine, has_machine: bool
    ):
        """Starts the node. number: number of the node, from 1. plan: plan of the samplers on the learner's
        machine. has_machine: whether the node reserves the whole machine, or shares it with other nodes."""
        self.machine = machine
        self.name = f"node {number} ({machine.address})"
        self.held: dict[int, Stamp] = {}
        self.offered: dict[int, Stamp] = {}
        self.unstored: list[Packed] = []
        self.has_answered = False
        self.silent_since = time.monotonic()
        self.is_reachable = True
        self._pulls: list[Any] = []
        self._next_pull = 0.0  # time.monotonic()
        self._update: Any = None
        self._on_the_way: dict[int, Stamp] = {}  # weights that `update` is sending, by policy
        # Each group has a thread: weights may take long to arrive, and stopping must not wait for `pull`.
        remote: Any = ray.remote
        actor_class: Any = remote(concurrency_groups={"weights": 1, "control": 1})(Node)
        resources = machine.resources if has_machine else {}
        self._actor: Any = actor_class.options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.ray_id, soft=False),
        ).remote(number, plan, flags, VERSION)

    @property
    def calls(self) -> list[Any]:
        """Ray's references to the calls that have not been passed to `take` yet."""
        return self._pulls if self._update is None else [*self._pulls, self._update]

    @property
    def may_pull(self) -> bool:
        """Whether `pull` may be called: all received trajectories are stored, few calls run, and the last
        failed call is RETRY_SECONDS ago."""
        limit = PULLS_IN_FLIGHT if self.is_reachable else 1
        return len(self._pulls) < limit and not self.unstored and time.monotonic() >= self._next_pull

    @property
    def may_update(self) -> bool:
        """Whether `update` may be called: the previous weights have arrived, and the node is reachable."""
        return self._update is None and self.is_reachable

    def pull(self, messages: list[RolloutMessage]) -> None:
        """Starts a call of `Node.pull`; `take` returns its result."""
        self._pulls.append(self._actor.pull.remote(messages))

    def update(self, weights: Mapping[int, tuple[Stamp, Any]]) -> None:
        """Starts a call of `Node.update`. weights: policy id -> (stamp, Ray's reference to the weights)."""
        # Ray replaces references by their values, except in a dict: Node.update itself waits for the values.
        self._update = self._actor.update.options(concurrency_group="weights").remote(weights)
        self._on_the_way = {policy_id: stamp for policy_id, (stamp, _) in weights.items()}

    def take(self, call: Any) -> Pulled | None:
        """Returns the result of a call that has ended; None if it was an `update`. call: one of `calls`.

        Raises NodeUnavailable or NodeDied if the call is lost, NodeFailed if the node's workers have failed.
        """
        is_update = call == self._update
        if is_update:
            self._update = None
        else:
            self._pulls.remove(call)
        result = self._result(call)
        if is_update:
            self.held.update(self._on_the_way)
            return None
        self.is_reachable = True
        self.silent_since = time.monotonic()
        return result

    def _result(self, call: Any) -> Pulled | None:
        try:
            result: Pulled | None = ray.get(call)
            return result
        except RayTaskError as error:
            raise NodeFailed(f"{self.name}: {error.cause}") from None
        except (ActorUnavailableError, ObjectLostError):  # ObjectLostError: while the result is transferred
            self.is_reachable = False
            self._next_pull = time.monotonic() + RETRY_SECONDS
            raise NodeUnavailable(f"{self.name} cannot be reached at the moment") from None
        except RayActorError as error:
            if error.actor_init_failed:
                last_line = str(error).strip().rpartition("\n")[2]
                raise NodeFailed(f"{self.name} cannot start: {last_line}") from None
            raise NodeDied(f"{self.name} died: {_first_line(error)}") from None
        except RayError as error:
            raise NodeDied(f"{self.name} is lost: {_first_line(error)}") from None

    @property
    def is_running(self) -> bool:
        """Whether the node has returned trajectories, and its last call has reached it."""
        return self.has_answered and self.is_reachable

    def ask_to_stop(self) -> Any:
        """Starts a call of `Node.stop`; returns Ray's reference to the call."""
        return self._actor.stop.options(concurrency_group="control").remote()

    def close(self) -> None:
        """Kills the Ray actor."""
        ray.kill(self._actor)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
