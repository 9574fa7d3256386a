"""The `doom_` family: ViZDoom scenarios. Only `make_doom_env` and what it needs load the engine."""

from dataclasses import dataclass

from sample_factory.config.command import Command
from sample_factory.config.flags import flag


@dataclass(frozen=True)
class HumanGameFlags:
    """The match that `play_doom` joins."""

    join: str | None = flag(
        None,
        "address of a match that waits for humans, printed by `enjoy --num_humans=1`; play alone if left out",
        metavar="HOST:PORT",
    )


PLAY_DOOM = Command(
    name="play_doom",
    experiment="new",
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
    reads=frozenset(("env", "cfg", "trust_code", "seed", "env_frameskip")),
    instead={
        "num_agents": "one human plays, or joins a match with --join=HOST:PORT",
        "num_humans": "one human plays, or joins a match with --join=HOST:PORT",
        "doom_levels": "write --doom_wad=FILE and --doom_map=NAME",
    },
)
