"""RunPlan: everything that is decided about a run before its processes start."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.topology import Topology
from sample_factory.models.policy_spec import PolicySpec


class Note(NamedTuple):
    """A line for the log: what was chosen, or a flag that has no effect."""

    text: str
    short: str | None = None  # for a terminal; empty: not shown; None: `text`
    is_warning: bool = False


class RunPlan(NamedTuple):
    """Every choice of a run, made in one pass by `launch.plan.plan_run`; nothing is looked up again later.

    Shared memory and processes are made from the plan, and each worker receives it with its index.

    config: the flags, with a number for --num_envs_per_worker.
    family: the EnvFamily that makes the envs; None in policy workers. info: what an env looks like.
    topology: all counts of processes, envs, agents and buffers.
    policies: by policy, the specification of its network.
    state_size: floats in the recurrent state of an agent.
    seed: --seed, or a random number in its place.
    algorithm, matchmaking: the factories that --algo and --matchmaking name. The plan carries them, and those
        of the networks, because the registries of child processes know only what is built in.
    transfer_from: by policy, the checkpoint that provides its first weights (--transfer_from), or None.
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
        """Returns the plan without the parts that only the main process uses: children might not be able to
        unpickle them."""
        return self._replace(observers={}, writers=(), notes=(), evaluation=None)
