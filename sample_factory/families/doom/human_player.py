"""The command `play_doom`: a human plays at keyboard and mouse, alone or in a match with trained agents."""

import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import vizdoom

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.doom.doom_env import DoomEnv
from sample_factory.families.doom.doom_family import DOOM_SPECS, DoomSpec
from sample_factory.families.doom.doom_match_env import DoomMatchEnv
from sample_factory.families.doom.engine import PLAYER_COUNT, START_ERRORS, DoomEngine
from sample_factory.families.doom.game_configuration import EngineSettings
from sample_factory.families.doom.lockstep import ANSWER_SECONDS, CLOSE_SECONDS, POLL_SECONDS, EngineThread
from sample_factory.families.doom.player_score import PlayerScore
from sample_factory.runtime.failures import CommandFailed

Endpoint = tuple[str, int]  # host and port at which a match waits for humans

# Defaults of the engine (defbinds.txt in vizdoom.pk3): keys -> (purpose, names of the engine's buttons).
KEYS: Mapping[str, tuple[str, Sequence[str]]] = {
    "up, down": ("move forward, backward", ("MOVE_FORWARD", "MOVE_BACKWARD")),
    ", .": ("step left, right", ("MOVE_LEFT", "MOVE_RIGHT")),
    "left, right": ("turn", ("TURN_LEFT", "TURN_RIGHT")),
    "mouse, left, right": ("turn", ("TURN_LEFT_RIGHT_DELTA",)),
    "Ctrl, left button": ("shoot", ("ATTACK",)),
    "Shift": ("run", ("SPEED",)),
    "Space": ("open doors, press switches", ("USE",)),
    "1 to 7": ("choose a weapon", [f"SELECT_WEAPON{number}" for number in range(1, 8)]),
    "mouse wheel": ("next, previous weapon", ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON")),
}


class NotPlayed(CommandFailed):
    """Raised if a human cannot play: without a display, if a game does not begin in time, or if the engine
    stops answering."""


def play_doom(config: Config) -> None:
    """Runs the command `play_doom`: lets a human play, see `run`. Ends quietly on Ctrl+C. Raises ConfigError
    for bad input, and NotPlayed if the game does not begin or the engine stops answering."""
    with contextlib.suppress(KeyboardInterrupt):
        run(config, resolve_family(config.env_name))


def run(config: Config, family: EnvFamily) -> None:
    """Lets a human play until the window is closed or the other players of a match have left; prints the
    results of each episode.

    config: result of `parse_config` with the extra section `human_game`.
    Raises ConfigError for bad input, NotPlayed if there is no display, the game does not begin, or the engine
        stops answering, and KeyboardInterrupt on Ctrl+C.
    """
    join = config.extra["human_game"].join
    cfg = config.namespace()
    try:
        endpoint = None if join is None else parse_endpoint(join)
        # This process has one player, the human: alone, or (num_humans=1) as the one who joins a match.
        cfg.num_agents = 1
        cfg.num_humans = 0 if endpoint is None else 1
        spec, settings = _game_of(family.make(cfg, EnvConfig(0, 0, 0)))
        print(instructions(spec, settings), flush=True)
        frameskip = config.env.env_frameskip or 1
        episodes = play(spec, settings, endpoint, config.run.seed, frameskip=frameskip)
        for episode, results in enumerate(episodes, 1):
            text = "  ".join(f"{name} {value:.5g}" for name, value in results.items())
            print(f"episode {episode}  {text}", flush=True)
        print("The game is over.")
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(str(error)) from error


def _game_of(env: Any) -> tuple[DoomSpec, EngineSettings]:
    """Closes an env of Doom, and returns its scenario and the settings of its engine, with which a human's
    engine is made. Raises ValueError for any other env."""
    env.close()
    inner = env.unwrapped
    if not isinstance(inner, DoomEnv | DoomMatchEnv):
        raise ValueError(f"{type(inner).__name__} is no game of Doom; choose one of {', '.join(DOOM_SPECS)}")
    agent = inner.agent if isinstance(inner, DoomEnv) else inner.agents[0]
    return agent.spec, agent.engine.settings


def parse_endpoint(text: str) -> Endpoint:
    """Converts an address "host:port" to (host, port). Raises ValueError for any other text."""
    host, _, port = text.rpartition(":")
    if host.split() != [host] or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"{text!r} is not host:port; write it like 127.0.0.1:5029")
    return host, int(port)


def instructions(spec: DoomSpec, settings: EngineSettings) -> str:
    """Returns what a human reads before the game: a scenario's name and goal, the keys for its buttons, and
    how to stop, as lines of text."""
    buttons = DoomEngine(settings).button_names()
    lines = [spec.name, *filter(None, [spec.goal])]
    for keys, (purpose, pressed) in KEYS.items():
        if not set(buttons).isdisjoint(pressed):
            lines.append(f"  {keys:<20}{purpose}")
    return "\n".join([*lines, "The score is printed here. To stop, close the window or press Ctrl+C here."])


def play(
    spec: DoomSpec,
    settings: EngineSettings,
    endpoint: Endpoint | None,
    seed: int | None = None,
    has_window: bool = True,
    frameskip: int = 4,
) -> Iterator[dict[str, float]]:
    """Lets a human play episode after episode; yields the results of each, see `_play_episode`.

    Ends when the window is closed or the other players have left.

    settings: settings of the human's engine. endpoint: address of the match to join; None: the human plays
        alone.
    frameskip: tics in a step of the agents; rewards are added up step by step.
    Raises NotPlayed if there is no display, the game does not begin, or the engine stops answering, and
        FileNotFoundError for a missing map.
    """
    # The engine's window library supports no other displays.
    if has_window and not os.environ.get("DISPLAY"):
        raise NotPlayed("there is no display to open a window on (DISPLAY is not set)")
    human = HumanEngine(settings, endpoint, has_window, np.random.default_rng(seed))
    try:
        human.begin()
        score = PlayerScore(spec, human.engine.variable_places())
        while True:
            yield _play_episode(human, spec, score, frameskip)
            if human.is_left_alone():
                return
            human.new_episode(ANSWER_SECONDS)
    except vizdoom.ViZDoomUnexpectedExitException:  # the window was closed
        return
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would interrupt `leave`
        raise
    finally:
        human.leave()


class HumanEngine:
    """Runs an engine in real time, optionally with a window. All calls on the engine are made in a second
    thread, since some wait for the other engines of a match: the main thread still receives Ctrl+C."""

    def __init__(
        self,
        settings: EngineSettings,
        endpoint: Endpoint | None,
        has_window: bool,
        rng: np.random.Generator,
    ):
        index = 0 if endpoint is None else 1
        self.engine = DoomEngine(settings._replace(is_human=True, has_window=has_window), index)
        self._endpoint = endpoint
        self._rng = rng
        self._thread = EngineThread(index)

    def begin(self) -> None:
        """Joins the match, if an endpoint was given, and begins the first episode. Raises NotPlayed if the
        engine does not start, or if no episode begins in time.

        In a match, the host changes the map after TICS_BEFORE_MATCH tics. ViZDoom notices the change only if
        the new map's tic number is not above the last tic that this process has played. So this engine plays
        tics until the change; if it is too slow to notice the change, the human plays from the next match on.
        """
        engine = self.engine
        progress = ""  # how far the human came, for the error
        seconds = ANSWER_SECONDS
        try:
            if self._endpoint is not None:
                host, port = self._endpoint
                progress = f" at {host}:{port}"
                engine.prepare(self._draw_seed(), port, host)
                self.call(engine.start, ANSWER_SECONDS)
                progress += " was joined, but"
                deadline = time.monotonic() + ANSWER_SECONDS
                while not engine.game.is_episode_finished() and time.monotonic() < deadline:
                    self.call(engine.game.advance_action, ANSWER_SECONDS)
                assert engine.settings.match is not None
                seconds += 60 * engine.settings.match.minutes
            self.new_episode(seconds)
        except (RuntimeError, *START_ERRORS) as error:
            name = engine.settings.env_name
            raise NotPlayed(f"{name}{progress} did not begin: {error} {engine.last_error()}") from error

    def new_episode(self, seconds: float) -> None:
        """Begins an episode. Raises NotPlayed if that takes more than `seconds`."""
        seed = self._draw_seed()
        self.call(lambda: self.engine.new_episode(seed), seconds)

    def call(self, function: Callable[[], object], seconds: float = float("inf")) -> None:
        """Calls the function in the engine's thread, and waits at most `seconds` until it returns. Raises the
        function's exceptions, and NotPlayed if the call takes longer."""
        deadline = time.monotonic() + seconds
        self._thread.begin(function)
        while not self._thread.is_free_within(POLL_SECONDS):
            if time.monotonic() > deadline:
                raise NotPlayed(f"no answer within {seconds:g} s")
        self._thread.check()

    def is_left_alone(self) -> bool:
        """Returns whether all other players have left the match; False if no match was joined."""
        return self._endpoint is not None and self.engine.game.get_game_variable(PLAYER_COUNT) < 2

    def leave(self) -> None:
        """Ends the engine process, even if a call still waits for it."""
        if not self._thread.is_free_within(POLL_SECONDS):
            self.engine.halt()
        if self._thread.is_free_within(CLOSE_SECONDS):
            self._thread.begin(self.engine.close)
            self._thread.is_free_within(CLOSE_SECONDS)
        else:
            self.engine.abandon()
            atexit.register(_exit_at_once)

    def _draw_seed(self) -> int:
        return int(self._rng.integers(2**32))


def _exit_at_once() -> None:
    """Ends this process without the interpreter's clean-up, which would crash while a call on an engine waits
    (vizdoom 1.3)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _play_episode(human: HumanEngine, spec: DoomSpec, score: PlayerScore, frameskip: int) -> dict[str, float]:
    """Plays an episode; returns its results by name: training reward, length in tics, objective, and match
    statistics."""
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
        now = game.get_episode_time()  # 0 where the map itself has ended the episode
        length = now - begin if now else length + 1
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
