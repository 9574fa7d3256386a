"""Finds the .wad file of a scenario in the user's folder and in the installed packages."""

import functools
import importlib.util
import itertools
import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("sample_factory")

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


class Wad(NamedTuple):
    """A map to play. doom_map: replaces the map that the scenario's .cfg names, if not None."""

    path: Path
    doom_map: str | None = None


def find_wad(name: str, folders: Sequence[str | Path | None] = ()) -> Wad:
    """Searches for the file `name` in the given folders, then in the packages vizdoom and envpool-assets.

    Raises FileNotFoundError, which lists the folders searched and says how to supply the file.
    """
    searched = [Path(folder).expanduser() for folder in folders if folder is not None]
    path = _find_file(name, searched)
    if path is not None:
        return Wad(path)
    if name in FALLBACKS:
        file, doom_map = FALLBACKS[name]
        path = _find_file(file, searched)
        if path is not None:
            _warn_of_fallback(name, file, doom_map)
            return Wad(path, doom_map)
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
        # find_spec locates a package without importing it.
        spec = importlib.util.find_spec(package)
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
