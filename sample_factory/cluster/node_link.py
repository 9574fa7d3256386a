"""On the learner's machine: the connection to one node."""

import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sample_factory.cluster.node import Node, NodePlan, Pulled
from sample_factory.cluster.packing import Unpacked
from sample_factory.cluster.ray_cluster import Machine, NodeFailed
from sample_factory.exchange.messages import RolloutMessage
from sample_factory.exchange.policy_weights import Stamp

PULLS_IN_FLIGHT = 2
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
        self.held: dict[int, Stamp] = {}  # by policy: the weights that it has
        self.offered: dict[int, Stamp] = {}  # the newest weights when they were last compared with `held`
        self.unstored: list[Unpacked] = []
        self.has_answered = False  # with trajectories
        self.is_reachable = True
        self._pulls: list[Any] = []
        self._next_pull = 0.0  # time.monotonic()
        self._update: Any = None
        self._on_the_way: dict[int, Stamp] = {}  # weights, by policy
        # Threads of their own: weights may be on their way for long, and stopping must not wait for `pull`.
        remote: Any = ray.remote
        actor_class: Any = remote(concurrency_groups={"weights": 1, "control": 1})(Node)
        resources = machine.resources if has_machine else {}
        self._actor: Any = actor_class.options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.ray_id, soft=False),
        ).remote(plan, ray.get)

    @property
    def calls(self) -> list[Any]:
        """References of all calls that are running."""
        return self._pulls if self._update is None else [*self._pulls, self._update]

    @property
    def may_pull(self) -> bool:
        """Whether `pull` may be called: not before its trajectories are stored."""
        limit = PULLS_IN_FLIGHT if self.is_reachable else 1
        return len(self._pulls) < limit and not self.unstored and time.monotonic() >= self._next_pull

    @property
    def may_update(self) -> bool:
        """Whether `update` may be called: not before the former weights have arrived."""
        return self._update is None and self.is_reachable

    def pull(self, messages: list[RolloutMessage]) -> None:
        """Calls Node.pull."""
        self._pulls.append(self._actor.pull.remote(messages))

    def update(self, weights: Mapping[int, tuple[Stamp, Any]]) -> None:
        """Calls Node.update. weights: by policy, stamp and reference of the slot."""
        # In a dict, references are sent as such; Node.update waits for what they stand for.
        self._update = self._actor.update.options(concurrency_group="weights").remote(weights)
        self._on_the_way = {policy_id: stamp for policy_id, (stamp, _) in weights.items()}

    def take(self, call: Any) -> Pulled | None:
        """Returns the result of a call that has ended; None of `update`.

        Raises NodeUnavailable, NodeDied, or NodeFailed if its workers have failed for good.
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
        return result

    def _result(self, call: Any) -> Pulled | None:
        try:
            result: Pulled | None = ray.get(call)
            return result
        except RayTaskError as error:
            raise NodeFailed(f"{self.name}: {error.cause}") from None
        except (ActorUnavailableError, ObjectLostError):  # the latter: during the transfer of its result
            self.is_reachable = False
            self._next_pull = time.monotonic() + RETRY_SECONDS
            raise NodeUnavailable(f"{self.name} cannot be reached at the moment") from None
        except RayActorError as error:
            if error.actor_init_failed:
                raise NodeFailed(f"{self.name} cannot start: {_last_line(error)}") from None
            raise NodeDied(f"{self.name} died: {_first_line(error)}") from None
        except RayError as error:
            raise NodeDied(f"{self.name} is lost: {_first_line(error)}") from None

    @property
    def is_running(self) -> bool:
        """Whether it has answered, and can be reached as far as is known."""
        return self.has_answered and self.is_reachable

    def ask_to_stop(self) -> Any:
        """Returns the reference of a call that stops its workers."""
        return self._actor.stop.options(concurrency_group="control").remote()

    def close(self) -> None:
        """Kills the actor."""
        ray.kill(self._actor)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
