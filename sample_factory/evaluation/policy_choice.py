"""Which saved policy plays which agent. Imports no torch, so that bad flags are reported at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.spaces.agent_kinds import AgentKinds

Value = TypeVar("Value")


class PolicyChoice(NamedTuple):
    """One policy at one time of its training. checkpoint: latest, best, milestone:VERSION, or a file."""

    policy_index: int
    checkpoint: str

    def __str__(self) -> str:
        return f"policy {self.policy_index}, {self.checkpoint}"


class Contestant(NamedTuple):
    """A policy of an experiment. config: the experiment's, which describes the model."""

    config: Config
    choice: PolicyChoice

    def __str__(self) -> str:
        return f"{self.config.run.experiment} ({self.choice})"

    def figures(self) -> dict[str, Any]:
        """Returns what identifies it, for a file."""
        return {"experiment": str(self.config.experiment_dir), **self.choice._asdict()}


class ScriptedContestant(NamedTuple):
    """A scripted player of the env, such as a bot."""

    player: str

    def __str__(self) -> str:
        return f"the player {self.player} of the env"

    def figures(self) -> dict[str, Any]:
        """Returns what identifies it, for a file."""
        return self._asdict()


def choices_of_agents(config: Config, kinds: AgentKinds) -> list[PolicyChoice]:
    """Returns the choice of --policy_index and --checkpoint for each agent. Raises ConfigError.

    With K kinds of agents, policy p plays kind p % K. A single value p also selects the neighbouring policies
    of the other kinds.
    """
    evaluation = config.evaluation
    num_agents = len(kinds.of_agent)
    num_kinds = len(kinds.spaces)
    checkpoints = evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
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


def _for_each_agent(flag: str, values: Sequence[Value], num_agents: int) -> Sequence[Value]:
    if len(values) == 1:
        return list(values) * num_agents
    if len(values) != num_agents:
        raise ConfigError(
            f"--{flag} has {len(values)} values; it takes one for all agents or one for each, and the env "
            f"has {num_agents}"
        )
    return values
