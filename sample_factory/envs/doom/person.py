"""A person at the keyboard, alone in a scenario or in a match with agents."""

import os
import sys
from typing import Iterator, NamedTuple

import numpy as np
import vizdoom

from sample_factory.envs.doom.doom_specs import DoomSpec
from sample_factory.envs.doom.engine import START_ERRORS, DoomEngine, EngineSettings
from sample_factory.envs.doom.player_score import PlayerScore

WINDOW = vizdoom.ScreenResolution.RES_800X600


class Address(NamedTuple):
    """Where a match waits."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From host:port. Raises ValueError."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"{text!r} is no address; it should be host:port, such as 127.0.0.1:5029")
        return cls(host, int(port))


class NotPlayed(RuntimeError):
    """The game did not begin."""


class PersonsEngine(DoomEngine):
    """An engine that runs in real time and shows a window, whose keyboard and mouse play."""

    def __init__(self, settings: EngineSettings, player: int, has_window: bool):
        self._has_window = has_window
        super().__init__(settings, player)

    def _configure(self) -> vizdoom.DoomGame:
        game = super()._configure()
        game.set_mode(vizdoom.Mode.ASYNC_SPECTATOR)
        game.set_screen_resolution(WINDOW)
        game.set_window_visible(self._has_window)
        return game


def play(
    spec: DoomSpec, settings: EngineSettings, match: Address | None, has_window: bool = True
) -> Iterator[dict[str, float]]:
    """Plays episode after episode, until the window is closed; the results of each.

    match: to join; None: a game of one's own. Raises NotPlayed.
    """
    if has_window and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        raise NotPlayed("there is no display to open a window on (DISPLAY is not set)")
    players = settings.match
    if players is not None:
        # Alone, a person takes the place of the agents.
        players = players._replace(num_players=1, num_humans=0 if match is None else 1)
    # The player number chooses a name and a colour; 0 is the host.
    engine = PersonsEngine(
        settings._replace(match=players), 0 if match is None else settings.match.num_players, has_window
    )
    generator = np.random.default_rng()
    try:
        if match is not None:
            engine.prepare(int(generator.integers(2**32)), match.port, match.host)
            engine.start()
        score = PlayerScore(spec, engine.variable_places())
        while True:
            engine.new_episode(int(generator.integers(2**32)))
            yield _episode(engine, spec, score)
    except vizdoom.ViZDoomUnexpectedExitException:  # the window was closed
        return
    except START_ERRORS as error:
        raise NotPlayed(f"{settings.env_name} did not start: {error}") from error
    finally:
        engine.close()


def _episode(engine: DoomEngine, spec: DoomSpec, score: PlayerScore) -> dict[str, float]:
    game = engine.game
    score.start(engine.variable_values())
    while not game.is_episode_finished():
        game.advance_action()
    _, info = score.end(game.get_total_reward(), engine.variable_values() if spec.match else [])
    return {"reward": game.get_total_reward(), **info.get("episode_extra_stats", {})}
