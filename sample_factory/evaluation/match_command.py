"""The command `match` and its flags. Imports no gymnasium: bad flags are reported at once."""

from dataclasses import dataclass

from sample_factory.config.command import FILMS, OF_PLAYING_IN_PARALLEL, Command, counts_episodes
from sample_factory.config.flags import flag


@dataclass(frozen=True)
class MatchFlags:
    """The opponent, and the number of matches. Declares the flags that only the command `match` has."""

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


COMMAND = Command(
    name="match",
    description="Plays matches between two policies in an env with two teams, and reports the win rate with "
    "its confidence interval.",
    examples="""
    # Two experiments against each other.
    --experiment=new --opponent_experiment=old --num_matches=200
    # The latest checkpoint of a policy against an earlier one.
    --experiment=duel --opponent_checkpoint=milestone:12345
    # A policy against a bot of the env.
    --experiment=generals --opponent_player=expander
    """,
    experiment="saved",
    run="sample_factory.evaluation.match:match",
    sections={"match": MatchFlags},
    reads=OF_PLAYING_IN_PARALLEL,
    instead={
        **counts_episodes("num_matches"),
        **FILMS,
        "save_video": "a match is not drawn; sample_factory.enjoy shows several policies",
        "vector_env_copies": "a match has one copy of the env",
    },
)
