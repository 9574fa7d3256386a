"""Which saved policy plays which agent. Imports no torch, so that bad flags are reported at once."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sample_factory.checkpoints.milestones import (
    PREFIXES,
    checkpoint_folder,
    find_checkpoints,
    find_milestones,
)
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import find_experiment
from sample_factory.config.flags import ConfigError
from sample_factory.spaces.agent_kinds import AgentKinds

Value = TypeVar("Value")
LATEST = "latest"
MILESTONE = "milestone:"
MILESTONES = "milestones"
MAX_LISTED = 8  # checkpoints in an error message


class PolicyChoice(NamedTuple):
    """Identifies a checkpoint of a policy. checkpoint: latest, best, milestone:VERSION, or the path of a
    file."""

    policy_index: int
    checkpoint: str

    def __str__(self) -> str:
        return f"policy {self.policy_index}, {self.checkpoint}"


def flags_of_call(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None,
    policy_index: int | None,
    checkpoint: str | os.PathLike[str],
    cfg: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Converts the arguments of a Python function, e.g. of `evaluate`, to flag name -> value.
    experiment: name of an experiment, its folder, or the file of a checkpoint.
    train_dir: folder of all experiments; None: the default. policy_index: None stands for the index in the
        name of the checkpoint file's folder, or 0. cfg: cfg.json of a checkpoint file without an experiment
        folder.
    Raises ConfigError if a checkpoint file is missing or no cfg.json belongs to it, and if `experiment` is a
    file and `checkpoint` is given too."""
    flags = find_experiment(experiment, train_dir, cfg)
    if "checkpoint" in flags and checkpoint != LATEST:
        raise ConfigError(
            f"checkpoint={checkpoint} and the file {flags['checkpoint']} were given; leave one out"
        )
    index = {} if policy_index is None else {"policy_index": policy_index}
    return {"policy_index": 0, "checkpoint": os.fspath(checkpoint), **flags, **index}


def chosen_policies(config: Config) -> list[PolicyChoice]:
    """Returns a choice for each pair of a policy in --policy_index and a checkpoint in --checkpoint."""
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    return [PolicyChoice(*pair) for pair in itertools.product(config.evaluation.policy_index, checkpoints)]


def measured_policies(config: Config) -> list[PolicyChoice]:
    """Returns a choice for each pair of a policy in --policy_index and a checkpoint in --checkpoint. The
    checkpoint "milestones" stands for all milestones of the policy, by ascending version."""
    measured = []
    for choice in chosen_policies(config):
        found = []
        if choice.checkpoint == MILESTONES:
            found = find_milestones(config.experiment_dir, choice.policy_index)
        # Without milestones, `find_checkpoint` says what there is.
        names = [f"{MILESTONE}{milestone.version}" for milestone in found] or [choice.checkpoint]
        measured += [choice._replace(checkpoint=name) for name in names]
    return measured


def choices_of_agents(config: Config, kinds: AgentKinds) -> list[PolicyChoice]:
    """Returns the policy of each agent by --policy_index and --checkpoint, [num_agents].
    With K kinds of agents, policy p plays kind p % K. If --policy_index is a single value p, the other kinds
    are played by the policies that were trained with it: p - p % K to p - p % K + K - 1.
    Raises ConfigError if a flag has neither one value nor one for each agent, or names a policy of another
    kind."""
    evaluation = config.evaluation
    num_agents = len(kinds.of_agent)
    num_kinds = len(kinds.spaces)
    checkpoints = evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    if len(checkpoints) == 1:
        refuse_file_for_all_kinds(checkpoints[0], num_kinds)
    policies = _for_each_agent("policy_index", evaluation.policy_index, num_agents)
    if len(evaluation.policy_index) == 1:
        policies = [p - p % num_kinds + kind for p, kind in zip(policies, kinds.of_agent)]
    for agent, (policy, kind) in enumerate(zip(policies, kinds.of_agent)):
        if policy % num_kinds != kind:
            raise ConfigError(
                f"--policy_index: policy {policy} has other spaces than agent {agent}, which is of kind "
                f"{kind} of {num_kinds}; policy p plays kind p % {num_kinds}"
            )
    return list(map(PolicyChoice, policies, _for_each_agent("checkpoint", checkpoints, num_agents)))


def names_file(checkpoint: str) -> bool:
    """Returns whether a value of --checkpoint is a path, not "latest", "best", "milestones" or
    "milestone:VERSION"."""
    return checkpoint not in (*PREFIXES, MILESTONES) and not checkpoint.startswith(MILESTONE)


def refuse_file_for_all_kinds(checkpoint: str, num_kinds: int) -> None:
    """Raises ConfigError if `checkpoint` is a file and the env has several kinds of agents. A file has one
    policy; if the networks of all kinds had equal shapes, that policy would act for agents that it was not
    trained for."""
    if num_kinds > 1 and names_file(checkpoint):
        raise ConfigError(
            f"--checkpoint={checkpoint}: a file has one policy, and the {num_kinds} kinds of agents of this "
            f"env need a policy each; use latest, best or {MILESTONE}VERSION (enjoy takes a file for each "
            "agent, too)"
        )


def _for_each_agent(flag: str, values: Sequence[Value], num_agents: int) -> Sequence[Value]:
    if len(values) == 1:
        return list(values) * num_agents
    if len(values) != num_agents:
        raise ConfigError(
            f"--{flag} has {len(values)} values; it takes one for all agents or one for each, and the env "
            f"has {num_agents}"
        )
    return values


def find_checkpoint(config: Config, choice: PolicyChoice) -> Path:
    """Returns the path of a checkpoint's file; the newest if several match. Raises ConfigError if there is
    none; the message lists the checkpoints that exist."""
    policy, checkpoint = choice
    if checkpoint in PREFIXES:
        after = f" beyond --save_best_after={config.monitoring.save_best_after}" * (checkpoint == "best")
        reason = f"there is none{after}"
        files = find_checkpoints(config.experiment_dir, policy, checkpoint)
    elif checkpoint == MILESTONES:
        reason = f"there are none, or this command plays one checkpoint: choose {MILESTONE}VERSION"
        files = []
    elif checkpoint.startswith(MILESTONE):
        reason = "no such milestone"
        version = checkpoint.removeprefix(MILESTONE)
        wanted = int(version) if version.isdecimal() else None
        milestones = find_milestones(config.experiment_dir, policy)
        files = [found.path(config.experiment_dir) for found in milestones if found.version == wanted]
    else:
        reason = f"there is no such file; it should be latest, best, {MILESTONE}VERSION or a path"
        path = Path(checkpoint).expanduser()
        files = [path] if path.is_file() else []
    if files:
        return files[-1]
    raise ConfigError(f"checkpoint {checkpoint}: {reason}; {_existing(config, policy)}")


def _existing(config: Config, policy: int) -> str:
    """Returns text for an error message that lists the checkpoints of a policy; if it has none, the policies
    that have some."""
    folder = config.experiment_dir
    names = [kind for kind in PREFIXES if find_checkpoints(folder, policy, kind)]
    names += [f"{MILESTONE}{milestone.version}" for milestone in find_milestones(folder, policy)]
    if names:
        left_out = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
        return f"{checkpoint_folder(folder, policy)} has {', '.join([*names[:MAX_LISTED], *left_out])}"
    folders = {path.parent.name for path in folder.glob("checkpoint_p*/*.pth")}
    others = sorted(name.removeprefix("checkpoint_p") for name in folders)
    if others:
        return f"policy {policy} has no checkpoints; --policy_index may be {' or '.join(others)}"
    return f"{folder} has no checkpoints; has its training saved one?"
