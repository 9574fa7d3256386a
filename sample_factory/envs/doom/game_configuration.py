"""Settings of an engine, and the DoomGame objects configured from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import vizdoom

from sample_factory.envs.doom.doom_family import MatchSpec
from sample_factory.envs.doom.engine_resources import LOOPBACK
from sample_factory.envs.doom.wads import find_wad, map_names

# How long the engines of a match look for each other. Their owner gives up earlier, see DoomEngine.halt.
CONNECT_SECONDS = 3600
NUM_COLORS = 8
WINDOW_RESOLUTION = vizdoom.ScreenResolution.RES_800X600


class EngineSettings(NamedTuple):
    """Scenario and match of an engine.

    wad_folders: searched first for the scenario's .wad. is_viewer: draws large pictures.
    """

    env_name: str
    scenario: Path
    wad_folders: Sequence[str | Path | None]
    wide_aspect_ratio: bool
    match: MatchSpec | None
    is_viewer: bool = False

    def invitation(self, port: int) -> str:
        """Returns the command with which a human on this machine joins the match."""
        assert self.match is not None
        flags = [f"--env={self.env_name}", f"--join={LOOPBACK}:{port}", f"--timelimit={self.match.minutes:g}"]
        if self.wad_folders[0] is not None:
            flags.append(f"--doom_scenarios_dir={self.wad_folders[0]}")
        return f"python -m sample_factory.play_doom {' '.join(flags)}"


def configured_game(settings: EngineSettings, is_human: bool, has_window: bool) -> vizdoom.DoomGame:
    """Returns a game that is ready to start, apart from its seed, its folder and the arguments of a match.

    is_human: plays in real time from keyboard and mouse; has_window: shows the window that receives them.
    Raises ValueError for a broken scenario file and FileNotFoundError for a missing map.
    """
    game = vizdoom.DoomGame()
    if not game.load_config(str(settings.scenario)):
        raise ValueError(f"{settings.env_name}: the engine cannot parse {settings.scenario}")
    _choose_map(game, settings)
    game.set_screen_resolution(WINDOW_RESOLUTION if is_human else _resolution(settings))
    # Planes by colour, [3, height, width], like the observation.
    game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
    game.set_window_visible(has_window)
    game.set_sound_enabled(False)
    game.set_mode(vizdoom.Mode.ASYNC_SPECTATOR if is_human else vizdoom.Mode.PLAYER)
    return game


def _choose_map(game: vizdoom.DoomGame, settings: EngineSettings) -> None:
    named = Path(game.get_doom_scenario_path())  # absolute, resolved from the folder of the .cfg
    wad = find_wad(named.name, [*settings.wad_folders, named.parent])
    game.set_doom_scenario_path(str(wad.path))
    if wad.doom_map is not None:
        game.set_doom_map(wad.doom_map)
    maps = map_names(wad.path)
    if maps and game.get_doom_map().upper() not in maps:
        # The engine would search for it forever.
        raise ValueError(
            f"{settings.env_name}: {wad.path} has no map {game.get_doom_map()}; it has {', '.join(maps)}"
        )


def _resolution(settings: EngineSettings) -> vizdoom.ScreenResolution:
    resolutions = vizdoom.ScreenResolution
    if settings.is_viewer:
        return resolutions.RES_640X360 if settings.wide_aspect_ratio else resolutions.RES_640X480
    return resolutions.RES_256X144 if settings.wide_aspect_ratio else resolutions.RES_160X120


def set_match(
    game: vizdoom.DoomGame, match: MatchSpec, engine_index: int, host: str, port: int, player_name: str
) -> None:
    """Gives the game the arguments of a match, and its time limit.

    engine_index: 0 hosts the match at the port, the others join it at host:port.
    """
    role = f"-host {match.num_engines} -port {port}" if engine_index == 0 else f"-join {host}:{port}"
    game.clear_game_args()
    game.add_game_args(
        f"{role} -deathmatch +timelimit {match.minutes:g} "
        "+sv_forcerespawn 1 +sv_noautoaim 1 +sv_respawnprotect 1 +sv_spawnfarthest 1 +sv_nocrouch 1 "
        "+sv_nojump 1 +sv_nofreelook 1 +sv_noexit 1 "
        f"+viz_respawn_delay {match.respawn_delay_seconds} +viz_connect_timeout {CONNECT_SECONDS} "
        f"+name {player_name} +colorset {engine_index % NUM_COLORS}"
    )
    game.set_episode_timeout(match.tics)
