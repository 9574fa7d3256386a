"""The Ray cluster of a run: the connection to it, and its machines."""

import logging
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ray
from ray._private.state import available_resources_per_node

from sample_factory.config.config import Config
from sample_factory.runtime.failures import Explained
from sample_factory.runtime.local_ray import LocalRay, find_cluster

# What nodes log is in the log files of Ray on their machines; what concerns the run arrives as reports.
OPTIONS: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}


class NodeFailed(Explained, RuntimeError):
    """The workers of a node have failed for good."""


class Machine(NamedTuple):
    """A machine of the cluster, a "node" in Ray's words."""

    ray_id: str
    address: str
    resources: dict[str, float]


class RayCluster:
    """The connection of this process to a Ray cluster."""

    def __init__(self, config: Config):
        """Connects to the cluster of --ray_address; without one, starts Ray on this machine alone.

        Raises CommandFailed if the cluster cannot be reached, or Ray does not start.
        """
        self._local_ray: LocalRay | None = None
        cluster = find_cluster(config.cluster.ray_address)
        if cluster is None:
            self._local_ray = LocalRay("--num_nodes", config.experiment_dir, OPTIONS)
        else:
            cluster.connect(OPTIONS)
        self._own_id = ray.get_runtime_context().get_node_id()

    def free_machines(self, in_use: Collection[str]) -> list[Machine]:
        """Returns the machines on which a node could be started; in_use: ids of those that have one.

        The learner's machine is none of them, except if Ray was started for this run alone: then it is the
        only one, and can have any number of nodes.
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
        """Returns how many of its CPUs and GPUs other jobs of Ray use, e.g. "3 of 8 CPUs"; empty if none."""
        free_by_machine: Any = available_resources_per_node
        return describe_use(machine.resources, free_by_machine().get(machine.ray_id, {}))

    @property
    def is_local(self) -> bool:
        """Whether Ray was started for this run alone."""
        return self._local_ray is not None

    def close(self) -> None:
        """Disconnects; ends a Ray that was started for this run."""
        if self._local_ray is None:
            ray.shutdown()
        else:
            self._local_ray.close()


def describe_use(resources: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Returns how many CPUs and GPUs of a machine are in use, e.g. "3 of 8 CPUs"; empty if none.

    resources, free: by Ray's name; a resource of which nothing is left is missing in `free`.
    """
    used = {name: resources.get(name, 0) - free.get(name, 0) for name in ("CPU", "GPU")}
    return " and ".join(f"{used[name]:g} of {resources[name]:g} {name}s" for name in used if used[name] > 0)
