"""Lets a human play at keyboard and mouse, alone in a scenario or in a match with agents."""

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
from sample_factory.envs.doom.engine import PLAYER_COUNT, START_ERRORS, DoomEngine
from sample_factory.envs.doom.game_configuration import EngineSettings
from sample_factory.envs.doom.lockstep import ANSWER_SECONDS, CLOSE_SECONDS, POLL_SECONDS, EngineThread
from sample_factory.envs.doom.player_score import PlayerScore
from sample_factory.runtime.failures import CommandFailed

Answer = TypeVar("Answer")


class Endpoint(NamedTuple):
    """Host and port at which a match waits for humans."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Parses host:port. Raises ValueError."""
        host, _, port = text.rpartition(":")
        if host.split() != [host] or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"{text!r} is not host:port; write it like 127.0.0.1:5029")
        return cls(host, int(port))


class NotPlayed(CommandFailed):
    """The game did not begin, or has stopped answering."""


class HumanEngine:
    """An engine in real time, with a window if wanted, and the thread that makes its calls.

    Some calls wait for the other engines of a match; with a thread the main thread still receives Ctrl+C.
    """

    def __init__(self, settings: EngineSettings, index: int, has_window: bool):
        self.engine = DoomEngine(settings, index, is_human=True, has_window=has_window)
        self._thread = EngineThread(index)

    def call(self, function: Callable[[], Answer], seconds: float = float("inf")) -> Answer:
        """Calls the function in the thread.

        Raises the function's exceptions, and NotPlayed if it takes more than `seconds`.
        """
        answers: list[Answer] = []
        deadline = time.monotonic() + seconds
        self._thread.begin(lambda: answers.append(function()))
        while not self._thread.is_free_within(POLL_SECONDS):
            if time.monotonic() > deadline:
                raise NotPlayed(f"no answer within {seconds:g} s")
        self._thread.check()
        return answers[0]

    def is_left_alone(self) -> bool:
        """Whether this is a match that all other players have left."""
        return self.engine.index > 0 and self.engine.game.get_game_variable(PLAYER_COUNT) < 2

    def leave(self) -> None:
        """Ends the process, whatever it is doing."""
        if not self._thread.is_free_within(POLL_SECONDS):
            self.engine.halt()
        if self._thread.is_free_within(CLOSE_SECONDS):
            self._thread.begin(self.engine.close)
            self._thread.is_free_within(CLOSE_SECONDS)
        else:
            self.engine.abandon()
            atexit.register(_exit_at_once)


def buttons(settings: EngineSettings) -> list[str]:
    """Returns the names of the scenario's buttons."""
    return DoomEngine(settings).button_names()


def play(
    spec: DoomSpec,
    settings: EngineSettings,
    endpoint: Endpoint | None,
    seed: int | None = None,
    has_window: bool = True,
    frameskip: int = 4,
) -> Iterator[dict[str, float]]:
    """Plays episode after episode and yields the results of each.

    Ends when the window is closed or the other players have left.

    settings: for one human, who joins the match at the endpoint, or plays alone (None).
    frameskip: tics in a step of the agents, whose rewards are added up step by step.
    Raises NotPlayed, and FileNotFoundError for a missing map.
    """
    # The engine's window library supports no other displays.
    if has_window and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        raise NotPlayed("there is no display to open a window on (DISPLAY is not set)")
    human = HumanEngine(settings, 0 if endpoint is None else 1, has_window)
    engine = human.engine
    seeds = _seeds(seed)
    try:
        _begin(human, endpoint, seeds)
        score = PlayerScore(spec, engine.variable_places())
        while True:
            yield _play_episode(human, spec, score, frameskip)
            if human.is_left_alone():
                return
            human.call(lambda: engine.new_episode(next(seeds)), ANSWER_SECONDS)
    except vizdoom.ViZDoomUnexpectedExitException:  # the window was closed
        return
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would interrupt `leave`
        raise
    finally:
        human.leave()


def _begin(human: HumanEngine, endpoint: Endpoint | None, seeds: Iterator[int]) -> None:
    engine = human.engine
    try:
        if endpoint is not None:
            engine.prepare(next(seeds), endpoint.port, endpoint.host)
            human.call(engine.start, ANSWER_SECONDS)
        human.call(lambda: engine.new_episode(next(seeds)), ANSWER_SECONDS)
    except (RuntimeError, *START_ERRORS) as error:
        where = "" if endpoint is None else f" at {endpoint.host}:{endpoint.port}"
        name = engine.settings.env_name
        raise NotPlayed(f"{name}{where} did not begin: {error} {engine.last_error()}") from error


def _exit_at_once() -> None:
    """Ends this process without clean-up, which crashes while a call on an engine waits (vizdoom 1.3)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _seeds(seed: int | None) -> Iterator[int]:
    generator = np.random.default_rng(seed)
    while True:
        yield int(generator.integers(2**32))


def _play_episode(human: HumanEngine, spec: DoomSpec, score: PlayerScore, frameskip: int) -> dict[str, float]:
    """Returns the results as `enjoy` prints those of an agent: the training reward, length and objective."""
    engine = human.engine
    game = engine.game
    limit = spec.time_limit_frames or float("inf")
    begin = game.get_episode_time()  # the first tics of some scenarios are skipped
    length = 0
    num_calls = 0
    reward = 0.0
    engine_return = 0.0
    step_return = 0.0  # the engine's return at the end of the last step
    step_end = frameskip
    score.start(engine.variable_values())
    while not (game.is_episode_finished() or length >= limit or human.is_left_alone()):
        human.call(game.advance_action)
        num_calls += 1
        length = game.get_episode_time() - begin
        # A call that takes several tics in real time counts the living reward of one.
        engine_return = game.get_total_reward() + game.get_living_reward() * (length - num_calls)
        if length >= step_end and not game.is_episode_finished():
            reward += score.step(engine_return - step_return, engine.variable_values())
            step_return = engine_return
            step_end += frameskip
    last_reward, info = score.end(engine_return - step_return, engine.variable_values())
    results = {"reward": reward + last_reward, "length": length}
    if "true_objective" in info:
        results["objective"] = info["true_objective"]
    stats = info.get("episode_extra_stats", {})
    if engine.bot_difficulty is not None:
        engine.bot_difficulty.update(stats)
    return {**results, **stats}
