"""Settings of an engine, the .wad file of its scenario, and the DoomGame objects configured from them."""

import functools
import importlib.util
import os
import shlex
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import vizdoom

from sample_factory.families.doom.doom_family import (
    BUFFERS,
    GAME_FIELDS,
    MAX_SKILL,
    TICS_PER_MINUTE,
    DoomSpec,
    MatchSpec,
)
from sample_factory.families.doom.engine_resources import ENGINE_PROGRAM, LOOPBACK
from sample_factory.families.doom.wad import check_starts, map_names
from sample_factory.runtime.log import log
from sample_factory.runtime.registry import did_you_mean

_stderr_lock = threading.Lock()  # of the process's error output, see `scenario_game`
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


# Further contents of a state.
CONTENTS = (
    *(f"{name}_buffer" for name in (*BUFFERS, "audio", "notifications")),
    "objects_info",
    "sectors_info",
)


class EngineSettings(NamedTuple):
    """Settings of an engine: scenario, match, maps and pictures.

    wad_folders: searched first for the scenario's .wad.
    variables: names of game variables that are read; names that the .cfg does not list are added after the
        .cfg's.
    wad, doom_map, doom_skill, iwad: values in place of the .cfg's, see DoomSpec.
    buffers: names of the further pictures that are observed, see doom_family.BUFFERS.
    is_grey: draws grey pictures.
    is_viewer: draws large pictures, and only those.
    is_human: plays in real time from keyboard and mouse; has_window: shows the window that receives them.
    """

    env_name: str
    scenario: Path
    wad_folders: Sequence[str | Path | None]
    wide_aspect_ratio: bool
    match: MatchSpec | None
    variables: Sequence[str] = ()
    wad: str | None = None
    doom_map: str | None = None
    doom_skill: int | None = None
    iwad: str | None = None
    buffers: Sequence[str] = ()
    is_grey: bool = False
    is_viewer: bool = False
    is_human: bool = False
    has_window: bool = False

    def in_level(self, spec: DoomSpec, flags: Mapping[str, Any]) -> "EngineSettings":
        """Returns these settings with the files, map and skill (GAME_FIELDS) of a level: the value of the
        flag, or of the spec if the flag is None."""
        fields: dict[str, Any] = {}
        for flag, field in GAME_FIELDS.items():
            if flag in flags:
                value = vars(spec)[field] if flags[flag] is None else flags[flag]
                is_file = field.endswith("wad") and value and Path(value).expanduser().is_file()
                fields[field] = str(Path(value).expanduser().absolute()) if is_file else value
        return self._replace(**fields)

    def invitation(self, port: int) -> str:
        """Returns the command line with which a human on this machine joins the match at the port."""
        assert self.match is not None
        flags = [f"--env={self.env_name}", f"--join={LOOPBACK}:{port}", f"--timelimit={self.match.minutes:g}"]
        if self.wad_folders[0] is not None:
            flags.append(f"--doom_scenarios_dir={self.wad_folders[0]}")
        values = self._asdict()
        chosen = {flag: values[field] for flag, field in GAME_FIELDS.items() if values[field] is not None}
        flags += [f"--{flag}={value}" for flag, value in chosen.items()]
        return f"python -m sample_factory play_doom {shlex.join(flags)}"


def configured_game(settings: EngineSettings) -> vizdoom.DoomGame:
    """Returns a game that is ready to start except for its seed, its folder and the arguments of a match.

    Raises ValueError for a .wad, map, skill or variable that does not exist, and FileNotFoundError for a
    missing file.
    """
    game = scenario_game(settings.scenario)
    _add_variables(game, settings)
    choose_map(game, settings)
    if settings.doom_skill is not None:
        if not 1 <= settings.doom_skill <= MAX_SKILL:  # ViZDoom would take the nearest skill
            raise ValueError(
                f"{settings.env_name}: doom_skill={settings.doom_skill}: must be 1, easy, to {MAX_SKILL}"
            )
        game.set_doom_skill(settings.doom_skill)
    size = "640X480" if settings.is_viewer else "160X120"
    if settings.wide_aspect_ratio:
        size = "640X360" if settings.is_viewer else "256X144"
    size = "800X600" if settings.is_human else size
    game.set_screen_resolution(vizdoom.ScreenResolution.__members__[f"RES_{size}"])
    is_grey = settings.is_grey and not settings.is_viewer and not settings.is_human
    # Planes by colour, [3, height, width], like the observation; grey: [height, width].
    game.set_screen_format(vizdoom.ScreenFormat.GRAY8 if is_grey else vizdoom.ScreenFormat.CRCGCB)
    _switch_buffers(game, settings)
    game.set_window_visible(settings.has_window)
    game.set_sound_enabled(False)
    game.set_mode(vizdoom.Mode.ASYNC_SPECTATOR if settings.is_human else vizdoom.Mode.PLAYER)
    return game


def _add_variables(game: vizdoom.DoomGame, settings: EngineSettings) -> None:
    known = vizdoom.GameVariable.__members__
    for name in settings.variables:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{settings.env_name}: ViZDoom has no game variable {name}{hint}")
        if known[name] not in game.get_available_game_variables():
            game.add_available_game_variable(known[name])


def scenario_game(scenario: Path) -> vizdoom.DoomGame:
    """Returns a game with the settings of a .cfg. ViZDoom ignores lines that it does not understand; its
    warnings on the error output are logged, each once per process."""
    game = vizdoom.DoomGame()
    with _stderr_lock, tempfile.TemporaryFile() as output:
        stderr = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            game.load_config(str(scenario))
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    for line in lines:
        _, of_scenario, warning = line.partition(f'WARNING! Loading config from: "{scenario}". ')
        if of_scenario:
            warn_once(f"{scenario}: {warning}")
        else:  # of another thread
            print(line, file=sys.stderr)
    return game


def choose_map(game: vizdoom.DoomGame, settings: EngineSettings) -> None:
    """Sets the .wad files and the map of a game that is configured by its .cfg. Raises ValueError for a .wad
    or map that does not exist, and FileNotFoundError for a missing file.

    Without a .wad of maps, the maps of the game's own file are played: as in ViZDoom, doom2.wad if it exists,
    else freedoom2.wad, which is in the package vizdoom.
    """
    wad, doom_map = _wad_of(game.get_doom_scenario_path(), settings.wad, settings, "--doom_wad")
    iwad, _ = _wad_of(game.get_doom_game_path(), settings.iwad, settings, "--doom_iwad")
    if wad is None and iwad is None:
        iwad = _find_file("doom2.wad", [Path()]) or find_wad("freedoom2.wad", [Path()], "--doom_iwad")[0]
    if iwad is not None:
        game.set_doom_game_path(str(iwad))
    if wad is not None:
        game.set_doom_scenario_path(str(wad))
    if settings.doom_map is not None:
        doom_map = settings.doom_map
    if doom_map is not None:
        game.set_doom_map(doom_map)
    file = wad or iwad
    assert file is not None
    maps = map_names(file)
    if game.get_doom_map().upper() not in maps:
        # The engine would search for it forever.
        raise ValueError(
            f"{settings.env_name}: {file} has no map {game.get_doom_map()}; it has {', '.join(maps)}: choose "
            "one with --doom_map"
        )
    check_starts(file, game.get_doom_map(), settings.match, settings.env_name)


def _wad_of(
    named: str, chosen: str | None, settings: EngineSettings, flag: str
) -> tuple[Path | None, str | None]:
    """Searches for a .wad: the file that a flag or the spec has `chosen`, otherwise the file `named` in the
    scenario's .cfg. Returns what `find_wad` returns; (None, None) if neither names a file."""
    if chosen is not None:
        return find_wad(chosen, [*settings.wad_folders, settings.scenario.parent], flag)
    path = Path(named)  # absolute, resolved from the folder of the .cfg, if it is there
    return find_wad(path.name, [*settings.wad_folders, path.parent], flag) if named else (None, None)


def _switch_buffers(game: vizdoom.DoomGame, settings: EngineSettings) -> None:
    """Enables the further pictures that settings.buffers names (none in a viewer's or human's engine), and
    disables all others, whatever the scenario's .cfg says."""
    observed = [f"{name}_buffer" for name in settings.buffers]
    unused = [name for name in CONTENTS if getattr(game, f"is_{name}_enabled")() and name not in observed]
    if unused:
        warn_once(
            f"{settings.scenario.name} switches on what costs time and the policy does not observe; switched "
            f"off: {', '.join(unused)}. See --doom_buffers"
        )
    for name in CONTENTS:
        is_on = name in observed and not settings.is_viewer and not settings.is_human
        getattr(game, f"set_{name}_enabled")(is_on)


def check_rules(env_name: str, match: MatchSpec) -> None:
    """Raises ValueError for names in match.settings that the engine does not know, which it would ignore, and
    for values that are no numbers."""
    program = ENGINE_PROGRAM.read_bytes() if match.settings else b""
    for name, value in match.settings.items():
        if not name.startswith("sv_") or name.encode() + b"\0" not in program:
            raise ValueError(f"{env_name}: MatchSpec.settings: the engine has no setting {name}")
        if not isinstance(value, (int, float)):
            raise ValueError(f"{env_name}: MatchSpec.settings: {name}={value!r} should be a number")


def set_match(
    game: vizdoom.DoomGame, settings: EngineSettings, engine_index: int, host: str, port: int
) -> None:
    """Sets the engine's command-line arguments for a match, and the time limit.

    engine_index: 0 hosts the match at the port, the others join it at host:port.
    """
    match = settings.match
    assert match is not None
    name = "Human" if settings.is_human else f"AI{engine_index or ''}"
    minutes = (match.tics + 0.5) / TICS_PER_MINUTE  # the engine rounds the tics of its limit down
    role = f"-host {match.num_engines} -port {port}" if engine_index == 0 else f"-join {host}:{port}"
    game.clear_game_args()
    rules = " ".join(f"+{variable} {value:g}" for variable, value in match.rules.items())
    game.add_game_args(
        f"{role} {'-deathmatch ' if match.deathmatch else ''}+timelimit {minutes:.9g} {rules} "
        f"+viz_respawn_delay {match.respawn_delay_seconds} +viz_connect_timeout {CONNECT_SECONDS} "
        f"+name {name} +colorset {engine_index % NUM_COLORS}"
    )
    game.set_episode_timeout(match.tics)


def find_wad(
    name: str, folders: Sequence[str | Path | None] = (), flag: str = "--doom_wad"
) -> tuple[Path, str | None]:
    """Searches for the file `name` in the given folders, then in the packages vizdoom and envpool-assets.

    flag: the flag to name in the error message.
    Returns (path, map). If a substitute file is used, `map` is the map to play in place of the .cfg's,
        otherwise None.
    Raises FileNotFoundError if no folder has the file; the message lists the folders, and says how to supply
        the file.
    """
    searched = [Path(folder).expanduser() for folder in folders if folder is not None]
    path = _find_file(name, searched)
    if path is not None:
        return path, None
    if name in FALLBACKS:
        file, doom_map = FALLBACKS[name]
        path = _find_file(file, searched)
        if path is not None:
            warn_once(
                f"The map {name} is in no installed package; playing {doom_map} of {file} instead. Results "
                "are not comparable with those on the original, which can be supplied with "
                "--doom_scenarios_dir."
            )
            return path, doom_map
    folders_searched = ", ".join(str(folder) for folder in [*searched, *_package_folders()])
    package = ", or `pip install envpool-assets`, which contains it" if name in ENVPOOL_NAMES else ""
    raise FileNotFoundError(
        f"{name} was not found (searched {folders_searched}). Get the file and pass its folder as "
        f"--doom_scenarios_dir, or another file as {flag}{package}"
    )


def _find_file(name: str, folders: Sequence[Path]) -> Path | None:
    candidates = [folder / name for folder in folders]
    for folder in _package_folders():
        candidates += [folder / name, folder / ENVPOOL_NAMES.get(name, name)]
    return next((path.resolve() for path in candidates if path.is_file()), None)


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    folders = []
    for package, subfolder in (
        ("vizdoom", "scenarios"),
        ("vizdoom", "."),
        ("envpool_assets", "vizdoom/maps"),
    ):
        spec = importlib.util.find_spec(package)  # imports nothing
        if spec is not None and spec.submodule_search_locations:
            folders.append(Path(spec.submodule_search_locations[0]) / subfolder)
    return tuple(folders)


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning once per process."""
    log.warning("%s", text)
