"""Lets a human play, alone or in a match with trained agents.

python -m sample_factory.play_doom --env=doom_basic

A match that was started with --num_humans=1 prints the address at which it waits:

python -m sample_factory.play_doom --env=doom_duel --join=127.0.0.1:5029
"""

import contextlib
import sys
from collections.abc import Sequence

from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 the game could not start, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.config.commands import PLAY_DOOM
        from sample_factory.config.parsing import parse_config
        from sample_factory.envs.doom import HumanGameFlags
        from sample_factory.envs.env_registry import resolve_family
        from sample_factory.runtime.log import setup_logging

        setup_logging("play_doom")
        own = {"human_game": HumanGameFlags}
        config = parse_config(arguments, resolve_family, extra_sections=own, command=PLAY_DOOM)
        from sample_factory.envs.doom.human_player import run

        with contextlib.suppress(KeyboardInterrupt):
            run(config, resolve_family(config.env_name))

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
