"""The `doom_` family: ViZDoom scenarios. Only `make_doom_env` and what it needs load the engine."""

from dataclasses import dataclass

from sample_factory.config.flags import flag


@dataclass(frozen=True)
class HumanGameFlags:
    """The match that `play_doom` joins."""

    join: str | None = flag(
        None,
        "address of a match that waits for humans, printed by `enjoy --num_humans=1`; play alone if left out",
        metavar="HOST:PORT",
    )
