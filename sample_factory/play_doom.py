"""Lets a person play, alone or in a match with trained agents.

python -m sample_factory.play_doom --env=doom_basic

A match that was started with --num_humans=1 says at which address it waits:

python -m sample_factory.play_doom --env=doom_duel --join=127.0.0.1:5029
"""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sample_factory.config.flags import flag
from sample_factory.experiment.exit_codes import exit_code

if TYPE_CHECKING:
    from sample_factory.config.config import Config


@dataclass(frozen=True)
class PlayFlags:
    """What to join."""

    join: str | None = flag(None, "host:port of a match that waits for people; None: play alone")


def play_doom(config: "Config") -> None:
    """Until the window is closed, the others of a match have left, or Ctrl+C.

    Raises ConfigError for bad input, NotPlayed, KeyboardInterrupt.
    """
    from sample_factory.config.config import ConfigError
    from sample_factory.envs.doom.human_player import Endpoint, play
    from sample_factory.envs.doom.make_doom_env import doom_spec, engine_settings

    join, cfg = config.extra["play_doom"].join, config.namespace()
    try:
        endpoint = Endpoint.parse(join) if join is not None else None
        spec = doom_spec(config.run.env)
        # The person is the one player of this process, alone or with another, who waits.
        cfg.num_agents = 1
        cfg.num_humans = 0 if endpoint is None else 1
        settings = engine_settings(spec.name, spec, cfg)
        for episode, results in enumerate(play(spec, settings, endpoint, config.run.seed), 1):
            told = ", ".join(f"{name} {value:g}" for name, value in results.items())
            print(f"episode {episode}: {told}", flush=True)
        print("The game is over.")
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(str(error)) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 the game did not begin, 2 bad input."""

    def command() -> None:
        from sample_factory.config.config import parse_config
        from sample_factory.envs.env_registry import resolve_family
        from sample_factory.runtime.log import setup_logging

        arguments = sys.argv[1:] if argv is None else argv
        config = parse_config(arguments, resolve_family, extra_sections={"play_doom": PlayFlags})
        setup_logging("play_doom")
        with contextlib.suppress(KeyboardInterrupt):
            play_doom(config)

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main())
