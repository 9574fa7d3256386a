"""One engine process: configured from a scenario, started, seeded, closed."""

import contextlib
import os
import signal

import numpy as np
import vizdoom

from sample_factory.families.doom.engine_resources import LOOPBACK, EngineFolder, PortClaim
from sample_factory.families.doom.game_configuration import EngineSettings, configured_game, set_match
from sample_factory.runtime.log import log

# Levels of scripted opponents, in percent of the best, and the engine's definition of one.
BOT_LEVELS = range(10, 101, 10)
BOT = """{{
    name {name}
    aiming {level}
    perfection {level}
    reaction {level}
    isp {level}
    color "40 cf 00"
    skin base
}}"""

START_ATTEMPTS = 3
PLAYER_COUNT = vizdoom.GameVariable.PLAYER_COUNT
# Failed starts that are worth another attempt, after a `close`.
START_ERRORS = (
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)


class BotDifficulty:
    """Adapts the bots' level from match to match: if the player wins, the level of the next bots rises; if
    the player is last or last but one, the level falls.

    The difficulty is a percentage, the mean of the bots' levels. Beyond 100, even the weaker bots of a match
    play at the best level. A difficulty that starts at MAX is never changed.
    """

    STEP = 10
    LEVEL_STD = 10.0
    MAX = 150

    def __init__(self, start: int):
        self.difficulty = min(start, self.MAX)
        self._adapts = start < self.MAX

    @staticmethod
    def definitions(max_bots: int) -> str:
        """Returns the text of the engine's file that defines bots: `max_bots` bots of each level."""
        return "\n".join(
            BOT.format(name=f"BOT_{level}_{index}", level=level)
            for level in BOT_LEVELS
            for index in range(max_bots)
        )

    def draw(self, num_bots: int, rng: np.random.Generator) -> list[str]:
        """Draws the levels of the next match's bots from a normal distribution around the difficulty; returns
        the names by which the engine knows these bots, see `definitions`."""
        levels = rng.normal(self.difficulty, self.LEVEL_STD, num_bots)
        levels = np.clip(np.round(levels / 10) * 10, BOT_LEVELS[0], BOT_LEVELS[-1]).astype(int)
        return [f"BOT_{level}_{index}" for index, level in enumerate(levels.tolist())]

    def update(self, stats: dict[str, float]) -> None:
        """Raises or lowers the difficulty by the result of a match. stats: result of `match_stats`; the
        difficulty of the match is added to it as "bot_difficulty"."""
        stats["bot_difficulty"] = float(self.difficulty)
        if not self._adapts:
            return
        if stats["leader_gap"] < 0:
            self.difficulty = min(self.difficulty + self.STEP, self.MAX)
        elif stats["final_place"] >= stats["num_players"] - 1:
            self.difficulty = max(self.difficulty - self.STEP, 0)


class DoomEngine:
    """Runs a DoomGame in an engine process, which the first `new_episode` starts and `close` ends.

    The engines of one match all need `prepare` with the same port, then `start` at the same time, because
    each call of `start` waits for the other engines. The same holds for `new_episode`.

    index: number of the engine in its match; 0 is the host.
    game: the DoomGame, which an env calls directly in each step; has the buttons and variables of the
        scenario.
    bot_difficulty: chooses the bots of the next match; the env must call its `update` after each match.

    Raises ValueError for a .wad, map, skill or variable that does not exist, and FileNotFoundError for a
    missing file.
    """

    def __init__(self, settings: EngineSettings, index: int = 0):
        self.settings = settings
        self.index = index
        self._is_started = False
        self._folder: EngineFolder | None = None
        self._pid: int | None = None
        self._port: PortClaim | None = None  # of a match with one engine
        self.game = configured_game(settings)
        self._variables = self.game.get_available_game_variables()
        self.bot_difficulty: BotDifficulty | None = None
        match = settings.match
        if match is not None and match.start_bot_difficulty is not None and index == 0:
            self.bot_difficulty = BotDifficulty(match.start_bot_difficulty)

    def button_names(self) -> list[str]:
        """Returns the engine's names of the scenario's buttons, in their order."""
        return [button.name for button in self.game.get_available_buttons()]

    def has_lost_humans(self) -> bool:
        """Returns whether humans have left the match."""
        match = self.settings.match
        if match is None or match.num_humans == 0:
            return False
        return self.game.get_game_variable(PLAYER_COUNT) < match.num_engines + match.num_bots

    def variable_places(self) -> dict[str, int]:
        """Returns the index of each game variable in lists of values such as `variable_values`, by name."""
        return {variable.name: place for place, variable in enumerate(self._variables)}

    def variable_values(self) -> list[float]:
        """Returns the current values of the game variables, also after the end of an episode."""
        return [self.game.get_game_variable(variable) for variable in self._variables]

    def screen_shape(self) -> tuple[int, int]:
        """Returns (height, width) of the engine's pictures in pixels."""
        return self.game.get_screen_height(), self.game.get_screen_width()

    def new_episode(self, seed: int) -> None:
        """Begins an episode, after starting the process if necessary. The episode depends on the seed alone;
        in a match, this holds only for the first episode of a process."""
        match = self.settings.match
        if not self._is_started:
            self._start_alone(seed)
        if match is None or not match.has_several_engines:
            # In some scenarios the engine's own first episode differs from a later one with the same seed.
            self.game.set_seed(seed)
        self.game.new_episode()
        if match is not None and self.index == 0:
            bots = [""] * match.num_bots
            if self.bot_difficulty is not None:
                bots = self.bot_difficulty.draw(match.num_bots, np.random.default_rng(seed))
            for command in ["removebots", *(f"addbot {name}".strip() for name in bots)]:
                self.game.send_game_command(command)

    def change_level(self, settings: EngineSettings) -> bool:
        """Applies the skill and the map of other settings from the next episode on. Returns False, and
        changes nothing, if the settings differ in anything else, or in a match.

        Raises ValueError for a map or skill that does not exist.
        """
        same = self.settings._replace(doom_map=settings.doom_map, doom_skill=settings.doom_skill)
        if settings != same or settings.match is not None:
            return False
        game = configured_game(settings)
        self.settings = settings
        if self._is_started:
            # In a running game, set_doom_skill changes nothing (vizdoom 1.3.2), while set_doom_map does.
            self.game.send_game_command(f"skill {game.get_doom_skill() - 1}")
            if game.get_doom_map() != self.game.get_doom_map():
                self.game.set_doom_map(game.get_doom_map())
        return True

    def prepare(self, seed: int, port: int | None = None, host: str = LOOPBACK) -> None:
        """Makes the game for the next `start`: sets its seed, its folder and the arguments of a match. Must
        be called before each `start`, while no other engine is starting: a program cannot be executed while
        any process has it open for writing, and a process that another start has just forked holds copies of
        our open files.

        port: of the match; None without a match. host: address of the match.
        """
        # A new game each time, because some failures crash this process instead of raising: a second start of
        # the same game, and (vizdoom 1.3) an engine that ends before its first message.
        self.game = configured_game(self.settings)
        self.game.set_seed(seed)
        match = self.settings.match
        folder = EngineFolder(is_quiet=match is not None and match.has_several_engines)
        self._folder = folder
        if match is not None:
            assert port is not None
            set_match(self.game, self.settings, self.index, host, port)
            if self.bot_difficulty is not None:
                bots = folder.path / "bots.cfg"
                bots.write_text(self.bot_difficulty.definitions(match.num_bots))
                self.game.add_game_args(f"+viz_bots_path {bots}")
        self.game.set_vizdoom_path(str(folder.program))
        # The engine writes its settings when it exits.
        self.game.set_doom_config_path("/dev/null")

    def start(self) -> None:
        """Starts the engine process; call `prepare` before each call. Raises one of START_ERRORS if the
        engine ends or does not answer; another attempt, after `close` and `prepare`, may succeed."""
        assert self._folder is not None
        self.game.init()
        self._is_started = True
        self._pid = self._folder.engine_pid()

    def is_gone(self) -> bool:
        """Returns whether the process has ended without a `close`. Thread-safe."""
        pid = self._pid
        if pid is None:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def last_error(self) -> str:
        """Returns the last line that the engine process has written to stderr, "" if there is none; always ""
        unless the match has several engines."""
        return self._folder.last_error() if self._folder is not None else ""

    def halt(self) -> None:
        """Kills the process. A call in another thread that waits for the engine usually raises then.

        Killing an engine that is starting would crash this process (vizdoom 1.3): such an engine is frozen,
        and ends with this process.
        """
        pid = self._folder.engine_pid() if self._folder is not None else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL if self._is_started else signal.SIGSTOP)

    def abandon(self) -> None:
        """Forgets a game that cannot be closed because a call still waits in it. The engine's folder is
        removed at the end of this process."""
        self._pid = None
        self._folder = None
        self._is_started = False

    def close(self) -> None:
        """Ends the process; `new_episode` or `start` can start another one."""
        # The fields are reset first: if `game.close` never returns, this thread does not touch a new start.
        folder = self._folder
        port = self._port
        self._pid = None
        self._folder = None
        self._port = None
        self._is_started = False
        self.game.close()
        if folder is not None:
            folder.remove()
        if port is not None:
            port.release()

    def _start_alone(self, seed: int) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                if self.settings.match is not None:
                    self._port = PortClaim()
                self.prepare(seed, self._port.number if self._port else None)
                self.start()
                return
            except START_ERRORS as error:
                self.close()
                log.warning("%s: start %d of the engine failed: %s", self.settings.env_name, attempt, error)
                last_error = error
        raise RuntimeError(
            f"{self.settings.env_name}: the engine did not start in {START_ATTEMPTS} attempts; scenario "
            f"{self.settings.scenario}, map {self.game.get_doom_scenario_path()}"
        ) from last_error
