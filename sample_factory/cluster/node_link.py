"""On the learner's machine: the connection to one node."""

import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sample_factory.cluster.node import Node, NodePlan, Pulled
from sample_factory.cluster.packing import Unpacked
from sample_factory.cluster.ray_cluster import Machine, NodeFailed
from sample_factory.exchange.messages import RolloutMessage
from sample_factory.exchange.policy_weights import Stamp

CALLS_IN_FLIGHT = 2


RETRY_SECONDS = 1.0  # between calls to a node that cannot be reached


class NodeDied(Exception):
    """The process of a node, or its machine, has ended or is regarded as lost."""


class NodeUnavailable(Exception):
    """A node cannot be reached at the moment. What it would have returned is lost."""


class NodeLink:
    """A Node as a Ray actor, and the calls to it. It is not restarted: a new link takes its place."""

    def __init__(self, plan: NodePlan, machine: Machine, has_machine: bool):
        """has_machine: whether the node reserves the whole machine, or shares it with others."""
        self.machine = machine
        self.name = f"node {plan.number} ({machine.address})"
        self.held: dict[int, Stamp] = {}  # by policy: the weights that it has, or that are on their way
        self.offered: dict[int, Stamp] = {}  # the newest weights at its last call
        self.unstored: list[Unpacked] = []
        self.has_answered = False  # with trajectories
        self.is_reachable = True
        self._calls: list[Any] = []
        self._next_call = 0.0  # time.monotonic()
        actor_class: Any = ray.remote(Node)
        resources = machine.resources if has_machine else {}
        self._actor: Any = actor_class.options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.ray_id, soft=False),
        ).remote(plan)

    @property
    def calls(self) -> list[Any]:
        """References of the calls that are running, the oldest first."""
        return self._calls

    @property
    def has_room(self) -> bool:
        """Whether another call can be made."""
        limit = CALLS_IN_FLIGHT if self.is_reachable else 1
        return len(self._calls) < limit and not self.unstored and time.monotonic() >= self._next_call

    @property
    def is_running(self) -> bool:
        """Whether it has answered, and can be reached as far as is known."""
        return self.has_answered and self.is_reachable

    def pull(self, weights: Mapping[int, tuple[Stamp, Any]], messages: list[RolloutMessage]) -> None:
        """Makes a call. weights: by policy, stamp and reference of the slot. Ray fetches them before."""
        stamps = {policy_id: stamp for policy_id, (stamp, _) in weights.items()}
        self.held.update(stamps)
        references = [reference for _, reference in weights.values()]
        self._calls.append(self._actor.pull.remote(stamps, messages, *references))

    def take(self, call: Any) -> Pulled:
        """Returns the result of a call that has ended.

        Raises NodeUnavailable, NodeDied, or NodeFailed if its workers have failed for good.
        """
        self._calls.remove(call)
        try:
            pulled: Pulled = ray.get(call)
        except RayTaskError as error:
            raise NodeFailed(f"{self.name}: {error.cause}") from None
        except ActorUnavailableError:
            self.is_reachable = False
            self.held.clear()  # weights may have been lost
            self._next_call = time.monotonic() + RETRY_SECONDS
            raise NodeUnavailable(f"{self.name} cannot be reached at the moment") from None
        except RayActorError as error:
            if error.actor_init_failed:
                raise NodeFailed(f"{self.name} cannot start: {_last_line(error)}") from None
            raise NodeDied(f"{self.name} died: {_first_line(error)}") from None
        self.is_reachable = True
        return pulled

    def ask_to_stop(self) -> Any:
        """Returns the reference of a call that stops its workers."""
        return self._actor.stop.remote()

    def close(self) -> None:
        """Kills what is left of it."""
        ray.kill(self._actor)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
