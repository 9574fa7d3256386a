"""The `doom_` family: ViZDoom scenarios. Only `make_doom_env` and what it needs load the engine."""

from dataclasses import dataclass

from sample_factory.config.command import NEW
from sample_factory.config.flags import flag


@dataclass(frozen=True)
class HumanGameFlags:
    """The match that `play_doom` joins."""

    join: str | None = flag(
        None,
        "address of a match that waits for humans, printed by `enjoy --num_humans=1`; play alone if left out",
        metavar="HOST:PORT",
    )


PLAY_DOOM = NEW.but(
    name="play_doom",
    description="Opens a window in which a human plays Doom.",
    examples="""
    # Play alone.
    --env=doom_basic
    # Play against the engine's bots.
    --env=doom_duel_bots --timelimit=2
    # Join a match that `enjoy --num_humans=1` has opened; it prints the address.
    --env=doom_duel --join=127.0.0.1:5029
    """,
    run="sample_factory.families.doom.human_player:play_doom",
    sections={"human_game": HumanGameFlags},
    common="env seed",
    reads="seed env_frameskip",
    ignores="num_agents num_humans levels level_choice doom_levels",
)
