"""One engine process: configured from a scenario, started, seeded, closed."""

import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import vizdoom

from sample_factory.envs.doom.bots import BotDifficulty, write_bots
from sample_factory.envs.doom.engine_folder import EngineFolder
from sample_factory.envs.doom.ports import LOOPBACK, PortClaim
from sample_factory.envs.doom.wads import find_wad, map_names

log = logging.getLogger("sample_factory")

START_ATTEMPTS = 3
TICS_PER_MINUTE = 60 * 35
# How long the engines of a match look for each other. Whoever starts them gives up before: see `halt`.
CONNECT_SECONDS = 3600
NUM_COLORS = 8
PLAYER_COUNT = vizdoom.GameVariable.PLAYER_COUNT
START_ERRORS = (
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)


class MatchSettings(NamedTuple):
    """A deathmatch. Each learning player has an engine; that of player 0 is the host. People bring their own.

    start_bot_difficulty: bots of `bots.py`; None: the assorted ones that come with the engine.
    """

    num_players: int  # that learn
    num_humans: int
    num_bots: int
    minutes: float
    respawn_delay_seconds: int
    start_bot_difficulty: int | None

    @property
    def has_several_engines(self) -> bool:
        return self.num_players + self.num_humans > 1


class EngineSettings(NamedTuple):
    """What to play. wad_folders: where the scenario's .wad is looked for before anywhere else."""

    env_name: str
    scenario: Path
    wad_folders: Sequence[str | Path | None]
    wide_aspect_ratio: bool
    match: MatchSettings | None

    def invitation(self, port: int) -> str:
        """The command by which a person on this machine joins the match."""
        flags = [f"--env={self.env_name}", f"--join={LOOPBACK}:{port}", f"--timelimit={self.match.minutes:g}"]
        if self.wad_folders[0] is not None:
            flags.append(f"--doom_scenarios_dir={self.wad_folders[0]}")
        return f"python -m sample_factory.play_doom {' '.join(flags)}"


class DoomEngine:
    """A DoomGame and its process, which `new_episode` starts when it first needs it, and `close` ends.

    Of a match with several players each needs `prepare`, with the same port, then `start`, at the same time:
    the calls wait for each other. So do those of `new_episode`.
    `game` is for the hot path; its buttons and variables are those of the scenario. `bot_difficulty`, where
    there is one, chooses the bots of the next match, and wants to hear of the last one's result.
    Raises ValueError for a broken scenario file and FileNotFoundError for a missing map.
    """

    def __init__(self, settings: EngineSettings, player: int = 0):
        self.settings, self._player = settings, player
        self._is_started = False
        self._folder: EngineFolder | None = None
        self._pid: int | None = None
        self._port: PortClaim | None = None  # of a match with one player
        self.game = self._configure()
        self._variables = self.game.get_available_game_variables()
        match = settings.match
        is_graded = match is not None and match.start_bot_difficulty is not None and player == 0
        self.bot_difficulty = BotDifficulty(match.start_bot_difficulty) if is_graded else None

    def button_names(self) -> list[str]:
        return [button.name for button in self.game.get_available_buttons()]

    def has_lost_players(self) -> bool:
        """Whether people have left the match."""
        match = self.settings.match
        expected = match.num_players + match.num_humans + match.num_bots
        return match.num_humans > 0 and self.game.get_game_variable(PLAYER_COUNT) < expected

    def variable_places(self) -> dict[str, int]:
        """Where each of the scenario's variables is in a state's array."""
        return {name.name: place for place, name in enumerate(self._variables)}

    def variable_values(self) -> list[float]:
        """The variables as they are now, which works after an episode's end too, where there is no state."""
        return [self.game.get_game_variable(name) for name in self._variables]

    def screen_shape(self) -> tuple[int, int]:
        """Height and width of the pictures in the game's states."""
        return self.game.get_screen_height(), self.game.get_screen_width()

    def new_episode(self, seed: int) -> None:
        """Begins an episode; the same seed begins the same one (a match: on a fresh engine only)."""
        match = self.settings.match
        if not self._is_started:
            self._start_alone(seed)
        if match is None or not match.has_several_engines:
            # In some scenarios the engine's own first episode differs from a later one with the same seed.
            self.game.set_seed(seed)
        self.game.new_episode()
        if match is not None and self._player == 0:
            self._replace_bots(match.num_bots, seed)

    def prepare(self, seed: int, port: int | None = None, host: str = LOOPBACK) -> None:
        """Must come before each `start`, and not while another engine starts: the program that a process is
        to run must not be open for writing in any other, nor in a copy that another start has just made.

        port, host: of a match.
        """
        # Some failures crash this process instead of raising: a second start of the same game, and (vizdoom
        # 1.3) an engine that ends before it has said anything.
        self.game = self._configure()
        self.game.set_seed(seed)
        match = self.settings.match
        self._folder = EngineFolder(is_quiet=match is not None and match.has_several_engines)
        if match is not None:
            self._prepare_match(match, port, host)
        self.game.set_vizdoom_path(str(self._folder.program))
        # The engine writes its settings at exit.
        self.game.set_doom_config_path("/dev/null")

    def start(self) -> None:
        """Starts the process, once; START_ERRORS are worth another attempt, after a `close`."""
        self.game.init()
        self._is_started = True
        self._pid = self._folder.engine_pid()

    def is_gone(self) -> bool:
        """Whether the process has ended though nobody has closed it. Another thread may ask at any time."""
        pid = self._pid
        if pid is None:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def last_words(self) -> str:
        """What the process of a match with several players has printed last."""
        return self._folder.last_words() if self._folder is not None else ""

    def halt(self) -> None:
        """Makes the process stop working at once. What waits for it in another thread usually raises then.

        While the engine starts, its end would crash this process (vizdoom 1.3): it is frozen, and ends with
        this process.
        """
        pid = self._folder.engine_pid() if self._folder is not None else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL if self._is_started else signal.SIGSTOP)

    def abandon(self) -> None:
        """For a game in which a call still waits: it cannot be closed. Its folder goes with this process."""
        self._pid, self._folder, self._is_started = None, None, False

    def close(self) -> None:
        """Ends the process; a closed engine can be used again."""
        # Should the game not let go of its caller, what comes then touches nothing of a new start.
        folder, port = self._folder, self._port
        self._pid = self._folder = self._port = None
        self._is_started = False
        self.game.close()
        if folder is not None:
            folder.remove()
        if port is not None:
            port.release()

    def _configure(self) -> vizdoom.DoomGame:
        settings = self.settings
        game = vizdoom.DoomGame()
        if not game.load_config(str(settings.scenario)):
            raise ValueError(f"{settings.env_name}: the engine does not understand {settings.scenario}")
        named = Path(game.get_doom_scenario_path())  # absolute: as seen from the .cfg's folder
        wad = find_wad(named.name, [*settings.wad_folders, named.parent])
        game.set_doom_scenario_path(str(wad.path))
        if wad.doom_map is not None:
            game.set_doom_map(wad.doom_map)
        maps = map_names(wad.path)
        if maps and game.get_doom_map().upper() not in maps:
            # The engine would look for it for ever.
            raise ValueError(
                f"{settings.env_name}: {wad.path} has no {game.get_doom_map()}, but {', '.join(maps)}"
            )
        wide = settings.wide_aspect_ratio
        resolutions = vizdoom.ScreenResolution
        game.set_screen_resolution(resolutions.RES_256X144 if wide else resolutions.RES_160X120)
        # Planes by colour, [3, height, width], which is how the observation is laid out.
        game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        return game

    def _player_name(self) -> str:
        return f"AI{self._player or ''}"

    def _replace_bots(self, num_bots: int, seed: int) -> None:
        commands = ["addbot"] * num_bots
        if self.bot_difficulty is not None:
            names = self.bot_difficulty.draw(num_bots, np.random.default_rng(seed))
            commands = [f"addbot {name}" for name in names]
        for command in ["removebots", *commands]:
            self.game.send_game_command(command)

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

    def _prepare_match(self, match: MatchSettings, port: int, host: str) -> None:
        is_host, player = self._player == 0, self._player
        num_engines = match.num_players + match.num_humans
        role = f"-host {num_engines} -port {port}" if is_host else f"-join {host}:{port}"
        self.game.clear_game_args()
        self.game.add_game_args(
            f"{role} -deathmatch +timelimit {match.minutes:g} "
            "+sv_forcerespawn 1 +sv_noautoaim 1 +sv_respawnprotect 1 +sv_spawnfarthest 1 +sv_nocrouch 1 "
            "+sv_nojump 1 +sv_nofreelook 1 +sv_noexit 1 "
            f"+viz_respawn_delay {match.respawn_delay_seconds} +viz_connect_timeout {CONNECT_SECONDS} "
            f"+name {self._player_name()} +colorset {player % NUM_COLORS}"
        )
        if self.bot_difficulty is not None:
            bots = self._folder.path / "bots.cfg"
            write_bots(bots, match.num_bots)
            self.game.add_game_args(f"+viz_bots_path {bots}")
        self.game.set_episode_timeout(round(match.minutes * TICS_PER_MINUTE))
