"""Lets two policies play against each other, and says which is better and how sure that is.

python -m sample_factory.match --env=my_duel --experiment=new --opponent_experiment=old --num_matches=200

Past against present: --opponent_checkpoint=milestone:12345 of the same experiment.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sample_factory.config.config import Config, ConfigError, parse_config
from sample_factory.config.flags import flag
from sample_factory.evaluation.policy_choice import Contestant, PolicyChoice
from sample_factory.experiment.exit_codes import exit_code

if TYPE_CHECKING:
    from sample_factory.evaluation.matches import Matches


@dataclass(frozen=True)
class MatchFlags:
    """The opponent, and how many matches."""

    num_matches: int = flag(100, "matches to play; after each, the two sides are swapped", at_least=1)
    opponent_experiment: str | None = flag(None, "the opponent's experiment; None: the same")
    opponent_policy_index: int | None = flag(
        None, "the opponent's policy; None: that of --policy_index", at_least=0, at_most=1000
    )
    opponent_checkpoint: str | None = flag(
        None, "the opponent's checkpoint, as in --checkpoint; None: --load_checkpoint_kind"
    )
    json: str | None = flag(None, "file for all figures and the result of each match")


class Plan(NamedTuple):
    """What was asked for."""

    contestants: tuple[Contestant, Contestant]
    own: MatchFlags


def parse_arguments(argv: Sequence[str]) -> Plan:
    """Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help."""
    config = _parse(argv)
    own: MatchFlags = config.extra["match"]
    opponent = config
    if own.opponent_experiment is not None:
        opponent = _parse([*argv, f"--experiment={own.opponent_experiment}"])
    _check(config, opponent, own)
    kind = config.monitoring.load_checkpoint_kind
    policy_index = _only("policy_index", config.evaluation.policy_index)
    choice = PolicyChoice(policy_index, _only("checkpoint", config.evaluation.checkpoint or (kind,)))
    if own.opponent_policy_index is not None:
        policy_index = own.opponent_policy_index
    of_opponent = PolicyChoice(policy_index, own.opponent_checkpoint or kind)
    if choice == of_opponent and config.experiment_dir == opponent.experiment_dir:
        raise ConfigError(
            f"{config.run.experiment} ({choice}) would play against itself; choose --opponent_experiment, "
            "--opponent_policy_index or --opponent_checkpoint"
        )
    return Plan((Contestant(config, choice), Contestant(opponent, of_opponent)), own)


def _parse(argv: Sequence[str]) -> Config:
    from sample_factory.envs.env_registry import resolve_family

    return parse_config(argv, resolve_family, evaluation=True, extra_sections={"match": MatchFlags})


def _only(flag_name: str, values: Sequence[Any]) -> Any:
    if len(values) != 1:
        raise ConfigError(
            f"--{flag_name} has {len(values)} values; in a match it takes one, and the opponent's is "
            f"--opponent_{flag_name}"
        )
    return values[0]


def _check(config: Config, opponent: Config, own: MatchFlags) -> None:
    """What would go wrong later had better go wrong now."""
    if config.run.env != opponent.run.env:
        raise ConfigError(
            f"{config.run.experiment} was trained in {config.run.env}, {opponent.run.experiment} in "
            f"{opponent.run.env}; say with --env where they are to meet"
        )
    if config.evaluation.save_video:
        raise ConfigError("--save_video: a match is not drawn; sample_factory.enjoy shows several policies")
    if own.json is not None and not Path(own.json).expanduser().absolute().parent.is_dir():
        raise ConfigError(f"--json={own.json}: there is no such folder")


def match(plan: Plan) -> "Matches":
    """Plays, prints who has won how often, and writes the file that --json names.

    Raises ConfigError when a checkpoint is missing, the env has no two teams or the file cannot be written,
    CheckpointError for an unusable checkpoint.
    """
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.evaluation.matches import play_matches

    family = resolve_family(plan.contestants[0].config.run.env)
    matches = play_matches(plan.contestants, family, plan.own.num_matches)
    print(matches.summary())
    if plan.own.json is not None:
        _write(plan.own.json, json.dumps(matches.figures(), indent=4) + "\n")
    return matches


def _write(path: str, text: str) -> None:
    try:
        Path(path).expanduser().write_text(text)
    except OSError as error:
        raise ConfigError(f"--json={path}: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 a checkpoint cannot be used, 2 bad input."""

    def command() -> None:
        from sample_factory.runtime.log import setup_logging

        plan = parse_arguments(sys.argv[1:] if argv is None else argv)
        setup_logging("match")
        match(plan)

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main())
