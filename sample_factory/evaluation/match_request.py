"""The flags of `match`, and the two contestants. Imports no torch: bad flags are reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sample_factory.config.commands import MATCH
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.policy_choice import PolicyChoice, chosen_policies


@dataclass(frozen=True)
class MatchFlags:
    """The opponent, and the number of matches."""

    num_matches: int = flag(100, "number of matches; after each, the two policies swap sides", at_least=1)
    opponent_experiment: str | None = flag(
        None, "run of the opponent; the same run if left out", metavar="NAME"
    )
    opponent_policy_index: int | None = flag(
        None,
        "number of the opponent's policy, in a run with several; --policy_index if left out",
        between=(0, 1000),
    )
    opponent_checkpoint: str | None = flag(
        None,
        "checkpoint of the opponent: latest, best, milestone:VERSION or the path of a file; "
        "--load_checkpoint_kind if left out",
    )
    opponent_player: str | None = flag(
        None, "scripted player of the env as the opponent, e.g. a bot, in place of a policy", metavar="NAME"
    )
    json: str | None = flag(None, "file for all figures and the result of each match", is_output=True)


class Contestant(NamedTuple):
    """A policy of an experiment, or a scripted player of the env.

    config: of the experiment, which describes the model. player: a name, e.g. of a bot; the policy otherwise.
    """

    config: Config
    player: PolicyChoice | str

    def __str__(self) -> str:
        if isinstance(self.player, str):
            return f"the player {self.player} of the env"
        return f"{self.config.run.experiment} ({self.player})"

    def figures(self) -> dict[str, Any]:
        """Returns what identifies it, for a file."""
        if isinstance(self.player, str):
            return {"player": self.player}
        return {"experiment": str(self.config.experiment_dir), **self.player._asdict()}


def parse_arguments(argv: Sequence[str]) -> tuple[Contestant, Contestant]:
    """Returns the policy and its opponent; the flags are in the first one's config.

    Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help.
    """
    config = _parse(argv)
    flags: MatchFlags = config.extra["match"]
    opponent_config = config
    if flags.opponent_experiment is not None:
        opponent_config = _parse([*argv, f"--experiment={flags.opponent_experiment}"])
    _check(config, opponent_config, flags)
    (choice,) = chosen_policies(config)
    if flags.opponent_player is not None:
        return Contestant(config, choice), Contestant(config, flags.opponent_player)
    index = choice.policy_index if flags.opponent_policy_index is None else flags.opponent_policy_index
    kind = config.monitoring.load_checkpoint_kind
    opponent_choice = PolicyChoice(index, flags.opponent_checkpoint or kind)
    if choice == opponent_choice and config.experiment_dir == opponent_config.experiment_dir:
        raise ConfigError(
            f"{config.run.experiment} ({choice}) would play against itself; choose --opponent_experiment, "
            "--opponent_policy_index or --opponent_checkpoint"
        )
    return Contestant(config, choice), Contestant(opponent_config, opponent_choice)


def _parse(argv: Sequence[str]) -> Config:
    own = {"match": MatchFlags}
    return parse_config(argv, resolve_family, evaluation=True, extra_sections=own, command=MATCH)


def _check(config: Config, opponent_config: Config, flags: MatchFlags) -> None:
    """Raises ConfigError for flags that contradict each other."""
    of_policy = (flags.opponent_experiment, flags.opponent_policy_index, flags.opponent_checkpoint)
    if flags.opponent_player is not None and any(value is not None for value in of_policy):
        raise ConfigError(
            f"--opponent_player={flags.opponent_player} takes the place of a policy; leave out "
            "--opponent_experiment, --opponent_policy_index and --opponent_checkpoint"
        )
    if config.env_name != opponent_config.env_name:
        raise ConfigError(
            f"{config.run.experiment} was trained in {config.env_name}, {opponent_config.run.experiment} in "
            f"{opponent_config.env_name}; choose with --env where they meet"
        )
    if config.evaluation.save_video:
        raise ConfigError("--save_video: a match is not drawn; sample_factory.enjoy shows several policies")
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    for name, values in (("policy_index", config.evaluation.policy_index), ("checkpoint", checkpoints)):
        if len(values) != 1:
            raise ConfigError(
                f"--{name} has {len(values)} values; in a match it takes one, and the opponent's is "
                f"--opponent_{name}"
            )
