"""Settings of an engine, the .wad file of its scenario, and the DoomGame objects configured from them."""

import functools
import importlib.util
import itertools
import shlex
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import vizdoom

from sample_factory.envs.doom.doom_family import TICS_PER_MINUTE, MatchSpec
from sample_factory.envs.doom.engine_resources import LOOPBACK
from sample_factory.envs.name_suggestions import CUTOFF, did_you_mean
from sample_factory.runtime.log import log

# How long the engines of a match look for each other. Their owner gives up earlier, see DoomEngine.halt.
CONNECT_SECONDS = 3600
NUM_COLORS = 8
# File names in envpool-assets of maps that our scenarios know by another name.
ENVPOOL_NAMES = {"battle.wad": "D3_battle.wad", "battle2.wad": "D4_battle2.wad"}


# The most similar map in an installed package, for a map that is in none: (file, map).
# Arenas with the full set of weapons in which bots find each other. multi_duel.wad, multi_deathmatch.wad and
# map01 of cig.wad are unsuitable: their only weapon is the rocket launcher, and a deadly floor, two starting
# points or suicides decide the match.
FALLBACKS = {
    "ssl2.wad": ("cig_with_unknown.wad", "map03"),
    "dwango5.wad": ("cig_with_unknown.wad", "map03"),
    "freedm.wad": ("cig_with_unknown.wad", "map05"),
}


class EngineSettings(NamedTuple):
    """Scenario and match of an engine.

    wad_folders: searched first for the scenario's .wad.
    variables: names of game variables that are read; those that the .cfg does not list are added after them.
    is_viewer: draws large pictures.
    is_human: plays in real time from keyboard and mouse; has_window: shows the window that receives them.
    """

    env_name: str
    scenario: Path
    wad_folders: Sequence[str | Path | None]
    wide_aspect_ratio: bool
    match: MatchSpec | None
    variables: Sequence[str] = ()
    is_viewer: bool = False
    is_human: bool = False
    has_window: bool = False

    def invitation(self, port: int) -> str:
        """Returns the command with which a human on this machine joins the match."""
        assert self.match is not None
        flags = [f"--env={self.env_name}", f"--join={LOOPBACK}:{port}", f"--timelimit={self.match.minutes:g}"]
        if self.wad_folders[0] is not None:
            flags.append(f"--doom_scenarios_dir={self.wad_folders[0]}")
        return f"python -m sample_factory.play_doom {shlex.join(flags)}"


def configured_game(settings: EngineSettings) -> vizdoom.DoomGame:
    """Returns a game that is ready to start, apart from its seed, its folder and the arguments of a match.

    Raises ValueError for a broken scenario file or an unknown variable, and FileNotFoundError for a missing
    map.
    """
    game = vizdoom.DoomGame()
    if not game.load_config(str(settings.scenario)):
        raise ValueError(f"{settings.env_name}: the engine cannot parse {settings.scenario}")
    _add_variables(game, settings)
    named = Path(game.get_doom_scenario_path())  # absolute, resolved from the folder of the .cfg
    wad, doom_map = find_wad(named.name, [*settings.wad_folders, named.parent])
    game.set_doom_scenario_path(str(wad))
    if doom_map is not None:
        game.set_doom_map(doom_map)
    maps = map_names(wad)
    if maps and game.get_doom_map().upper() not in maps:
        # The engine would search for it forever.
        raise ValueError(
            f"{settings.env_name}: {wad} has no map {game.get_doom_map()}; it has {', '.join(maps)}"
        )
    size = "640X480" if settings.is_viewer else "160X120"
    if settings.wide_aspect_ratio:
        size = "640X360" if settings.is_viewer else "256X144"
    size = "800X600" if settings.is_human else size
    game.set_screen_resolution(vizdoom.ScreenResolution.__members__[f"RES_{size}"])
    # Planes by colour, [3, height, width], like the observation.
    game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
    game.set_window_visible(settings.has_window)
    game.set_sound_enabled(False)
    game.set_mode(vizdoom.Mode.ASYNC_SPECTATOR if settings.is_human else vizdoom.Mode.PLAYER)
    return game


def _add_variables(game: vizdoom.DoomGame, settings: EngineSettings) -> None:
    known = vizdoom.GameVariable.__members__
    for name in settings.variables:
        if name not in known:
            hint = did_you_mean(name, known, CUTOFF)
            raise ValueError(f"{settings.env_name}: ViZDoom has no game variable {name}{hint}")
        if known[name] not in game.get_available_game_variables():
            game.add_available_game_variable(known[name])


def set_match(
    game: vizdoom.DoomGame, settings: EngineSettings, engine_index: int, host: str, port: int
) -> None:
    """Gives the game the arguments of a match, and its time limit.

    engine_index: 0 hosts the match at the port, the others join it at host:port.
    """
    match = settings.match
    assert match is not None
    name = "Human" if settings.is_human else f"AI{engine_index or ''}"
    minutes = (match.tics + 0.5) / TICS_PER_MINUTE  # the engine rounds the tics of its limit down
    role = f"-host {match.num_engines} -port {port}" if engine_index == 0 else f"-join {host}:{port}"
    game.clear_game_args()
    game.add_game_args(
        f"{role} -deathmatch +timelimit {minutes:.9g} "
        "+sv_forcerespawn 1 +sv_noautoaim 1 +sv_respawnprotect 1 +sv_spawnfarthest 1 +sv_nocrouch 1 "
        "+sv_nojump 1 +sv_nofreelook 1 +sv_noexit 1 "
        f"+viz_respawn_delay {match.respawn_delay_seconds} +viz_connect_timeout {CONNECT_SECONDS} "
        f"+name {name} +colorset {engine_index % NUM_COLORS}"
    )
    game.set_episode_timeout(match.tics)


def find_wad(name: str, folders: Sequence[str | Path | None] = ()) -> tuple[Path, str | None]:
    """Searches for the file `name` in the given folders, then in the packages vizdoom and envpool-assets.

    Returns (path, map): of a replacement, the map to play instead of the one in the .cfg, otherwise None.
    Raises FileNotFoundError, which lists the folders searched and says how to supply the file.
    """
    searched = [Path(folder).expanduser() for folder in folders if folder is not None]
    path = _find_file(name, searched)
    if path is not None:
        return path, None
    if name in FALLBACKS:
        file, doom_map = FALLBACKS[name]
        path = _find_file(file, searched)
        if path is not None:
            _warn_of_fallback(name, file, doom_map)
            return path, doom_map
    folders_searched = ", ".join(str(folder) for folder in [*searched, *_package_folders()])
    raise FileNotFoundError(
        f"The map {name} was not found (searched {folders_searched}). Get the file and pass its folder as "
        f"--doom_scenarios_dir, or `pip install envpool-assets`, which contains battle and battle2."
    )


def map_names(path: Path) -> list[str]:
    """Returns the names of the maps in a .wad file, in upper case; none for a file of another format."""
    content = path.read_bytes()
    if content[:4] not in (b"PWAD", b"IWAD"):
        return []
    num_lumps, directory = struct.unpack_from("<ii", content, 4)
    entries = [struct.unpack_from("<ii8s", content, directory + 16 * index) for index in range(num_lumps)]
    names = [name.rstrip(b"\0").decode("ascii", "replace").upper() for _, _, name in entries]
    # A map's name is a lump that is followed by the lumps with the map's contents.
    return [name for name, following in itertools.pairwise(names) if following in ("TEXTMAP", "THINGS")]


def _find_file(name: str, folders: Sequence[Path]) -> Path | None:
    candidates = [folder / name for folder in folders]
    for folder in _package_folders():
        candidates += [folder / name, folder / ENVPOOL_NAMES.get(name, name)]
    return next((path.resolve() for path in candidates if path.is_file()), None)


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    folders = []
    for package, subfolder in (("vizdoom", "scenarios"), ("envpool_assets", "vizdoom/maps")):
        spec = importlib.util.find_spec(package)  # imports nothing
        if spec is not None and spec.submodule_search_locations:
            folders.append(Path(spec.submodule_search_locations[0]) / subfolder)
    return tuple(folders)


@functools.cache  # once per process and map
def _warn_of_fallback(name: str, file: str, doom_map: str) -> None:
    log.warning(
        "The map %s is in no installed package; playing %s of %s instead. Results are not comparable with "
        "those on the original, which can be supplied with --doom_scenarios_dir.",
        name,
        doom_map,
        file,
    )
