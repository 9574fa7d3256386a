"""A person at the keyboard, alone in a scenario or in a match with agents."""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import vizdoom

from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import PLAYER_COUNT, START_ERRORS, DoomEngine, EngineSettings
from sample_factory.envs.doom.lockstep import ANSWER_SECONDS, CLOSE_SECONDS, LOOK_SECONDS, PlayerThread
from sample_factory.envs.doom.player_score import PlayerScore
from sample_factory.runtime.command_failed import CommandFailed

WINDOW = vizdoom.ScreenResolution.RES_800X600

Answer = TypeVar("Answer")


class Endpoint(NamedTuple):
    """Where a match waits."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """From host:port. Raises ValueError."""
        host, _, port = text.rpartition(":")
        if host.split() != [host] or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"{text!r} is no address; it should be host:port, such as 127.0.0.1:5029")
        return cls(host, int(port))


class NotPlayed(CommandFailed):
    """The game did not begin, or does not go on."""


class PersonsEngine(DoomEngine):
    """An engine that runs in real time and shows a window, whose keyboard and mouse play.

    Its calls are made in a thread, since some of them wait for the other engines of a match: Ctrl+C is heard.
    """

    def __init__(self, settings: EngineSettings, player: int, has_window: bool):
        self._has_window, self._thread = has_window, PlayerThread(player)
        super().__init__(settings, player)

    def call(self, function: Callable[[], Answer], seconds: float = float("inf")) -> Answer:
        """Raises what the function raises, and NotPlayed if that takes more than `seconds`."""
        answers: list[Answer] = []
        deadline = time.monotonic() + seconds
        self._thread.begin(lambda: answers.append(function()))
        while not self._thread.is_free_within(LOOK_SECONDS):
            if time.monotonic() > deadline:
                raise NotPlayed(f"no answer within {seconds:g} s")
        self._thread.check()
        return answers[0]

    def is_left_alone(self) -> bool:
        """In a match whose other players have gone."""
        return self._player > 0 and self.game.get_game_variable(PLAYER_COUNT) < 2

    def leave(self) -> None:
        """Ends the process, whatever it is doing."""
        if not self._thread.is_free_within(LOOK_SECONDS):
            self.halt()
        if self._thread.is_free_within(CLOSE_SECONDS):
            self._thread.begin(self.close)
            self._thread.is_free_within(CLOSE_SECONDS)
        else:
            self.abandon()
            atexit.register(_end_at_once)

    def _configure(self) -> vizdoom.DoomGame:
        game = super()._configure()
        game.set_mode(vizdoom.Mode.ASYNC_SPECTATOR)
        game.set_screen_resolution(WINDOW)
        game.set_window_visible(self._has_window)
        return game

    def _player_name(self) -> str:
        return "Human"


def play(
    spec: DoomSpec,
    settings: EngineSettings,
    address: Endpoint | None,
    seed: int | None = None,
    has_window: bool = True,
) -> Iterator[dict[str, float]]:
    """Plays episode after episode, until the window is closed, or the others have left; the results of each.

    settings: of one player, who joins the match at an address, or is alone (None). Raises NotPlayed, and
    FileNotFoundError for a missing map.
    """
    # The engine's window library knows no other displays.
    if has_window and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        raise NotPlayed("there is no display to open a window on (DISPLAY is not set)")
    engine, generator = PersonsEngine(settings, 0 if address is None else 1, has_window), _seeds(seed)
    try:
        _begin(engine, address, generator)
        score = PlayerScore(spec, engine.variable_places())
        while True:
            yield _episode(engine, spec, score)
            if engine.is_left_alone():
                return
            engine.call(lambda: engine.new_episode(next(generator)), ANSWER_SECONDS)
    except vizdoom.ViZDoomUnexpectedExitException:  # the window was closed
        return
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would come in the middle of leaving
        raise
    finally:
        engine.leave()


def _begin(engine: PersonsEngine, address: Endpoint | None, seeds: Iterator[int]) -> None:
    try:
        if address is not None:
            engine.prepare(next(seeds), address.port, address.host)
            engine.call(engine.start, ANSWER_SECONDS)
        engine.call(lambda: engine.new_episode(next(seeds)), ANSWER_SECONDS)
    except (RuntimeError, *START_ERRORS) as error:
        where = "" if address is None else f" at {address.host}:{address.port}"
        name = engine.settings.env_name
        raise NotPlayed(f"{name}{where} did not begin: {error} {engine.last_words()}") from error


def _end_at_once() -> None:
    """With a call that never returns, the orderly end of this process would be a crash (vizdoom 1.3)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _seeds(seed: int | None) -> Iterator[int]:
    generator = np.random.default_rng(seed)
    while True:
        yield int(generator.integers(2**32))


def _episode(engine: PersonsEngine, spec: DoomSpec, score: PlayerScore) -> dict[str, float]:
    game, limit = engine.game, spec.time_limit_frames or float("inf")
    score.start(engine.variable_values())
    while not (game.is_episode_finished() or game.get_episode_time() >= limit or engine.is_left_alone()):
        engine.call(game.advance_action)
    reward = game.get_total_reward()
    _, info = score.end(reward, engine.variable_values())
    stats = info.get("episode_extra_stats", {})
    if engine.bot_difficulty is not None:
        engine.bot_difficulty.update(stats)
    return {"reward": reward, **stats}
