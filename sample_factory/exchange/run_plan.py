"""RunPlan: everything that is decided about a run before any of its processes starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.topology import Topology
from sample_factory.models.policy_spec import PolicySpec


class Note(NamedTuple):
    """A line for the log: what was chosen, or a flag that has no effect. short: its text on a terminal."""

    text: str
    short: str | None = None
    is_warning: bool = False


class RunPlan(NamedTuple):
    """Every choice of a run, made in one pass by `launch.plan.plan_run`. Nothing is looked up again later:
    shared memory and processes are made from the plan, and each worker gets it with its index.

    config: the flags, with a number for --num_envs_per_worker.
    family: the EnvFamily that makes the envs; None in policy workers. info: their spaces and the like.
    topology: all counts of processes, envs, agents and buffers.
    policies: of each policy, the network that all its processes build.
    state_size: floats in the recurrent state of an agent.
    seed: --seed, or a random number in its place.
    algorithm, matchmaking: the factories that --algo and --matchmaking name. Like those of the networks, they
        are sent to child processes, whose registries know only what is built in.
    transfer_from: by policy, the checkpoint with whose weights it starts (--transfer_from), or None.
    observers: name -> Observer; for the main process only.
    writers: SummaryWriters beside those for files, e.g. of W&B; for the main process only.
    reports_infos: whether an observer reads the infos of episodes.
    notes: lines for the log of the run.
    evaluation: the plan of the evaluations during training (--eval_every_env_steps).
    """

    config: Config
    family: Any
    info: EnvInfo
    topology: Topology
    policies: tuple[PolicySpec, ...]
    state_size: int
    seed: int
    algorithm: Any
    matchmaking: Any
    transfer_from: tuple[Path | None, ...]
    observers: Mapping[str, Any] = {}
    writers: Sequence[Any] = ()
    reports_infos: bool = False
    notes: tuple[Note, ...] = ()
    evaluation: "RunPlan | None" = None

    def to_send(self) -> "RunPlan":
        """Returns the plan without what only the main process uses, and others could not unpickle."""
        return self._replace(observers={}, writers=(), notes=(), evaluation=None)
