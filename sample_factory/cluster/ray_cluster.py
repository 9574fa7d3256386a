"""The Ray cluster of a run: the connection to it, and its machines."""

import logging
from collections.abc import Collection
from typing import Any, NamedTuple

import ray

from sample_factory.config.cluster_flags import ClusterFlags
from sample_factory.config.config import Config
from sample_factory.runtime.failures import Explained
from sample_factory.runtime.local_ray import LocalRay, keeping_sigterm

# What nodes log is in the log files of Ray on their machines; what concerns the run arrives as reports.
OPTIONS: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}


class NodeFailed(Explained, RuntimeError):
    """The cluster cannot be reached, or the workers of a node have failed for good."""


class Machine(NamedTuple):
    """A machine of the cluster, a "node" in Ray's words."""

    ray_id: str
    address: str
    resources: dict[str, float]


class RayCluster:
    """The connection of this process to a Ray cluster."""

    def __init__(self, config: Config):
        """Connects to --ray_address; without one, starts Ray on this machine alone.

        Raises NodeFailed if the cluster cannot be reached, CommandFailed if Ray does not start.
        """
        self._local_ray = _connect(config.cluster, config)
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


def _connect(flags: ClusterFlags, config: Config) -> LocalRay | None:
    """Returns the Ray that was started for this run, or None if one was found at --ray_address."""
    if flags.ray_address is None:
        return LocalRay("--num_nodes", config.experiment_dir, OPTIONS)
    try:
        with keeping_sigterm():
            ray.init(address=flags.ray_address, **OPTIONS)
    except (ConnectionError, ValueError) as error:
        raise NodeFailed(f"--ray_address={flags.ray_address}: {error}") from None
    return None
