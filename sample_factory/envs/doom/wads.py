"""Finds the .wad file of a scenario among the user's folder and the installed packages."""

import functools
import importlib.util
import itertools
import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("sample_factory")

# The names that envpool-assets gives to the maps that our scenarios call otherwise.
ENVPOOL_NAMES = {"battle.wad": "D3_battle.wad", "battle2.wad": "D4_battle2.wad"}


class Fallback(NamedTuple):
    """The nearest map that a package carries, for a map that none does."""

    wad: str
    doom_map: str


# Arenas with the full set of weapons in which bots find each other. Not multi_duel.wad, multi_deathmatch.wad
# and map01 of cig.wad: rockets are all there is, and a deadly floor, two starting points or suicides decide
# the match.
FALLBACKS = {
    "ssl2.wad": Fallback("cig_with_unknown.wad", "map03"),
    "dwango5.wad": Fallback("cig_with_unknown.wad", "map03"),
    "freedm.wad": Fallback("cig_with_unknown.wad", "map05"),
}


class Wad(NamedTuple):
    """A map to play. `doom_map` is None where the map that the scenario's .cfg names is right."""

    path: Path
    doom_map: str | None = None


def find_wad(name: str, folders: Sequence[str | Path | None] = ()) -> Wad:
    """Looks for the file `name` in the given folders, then in the vizdoom and envpool-assets packages.

    Raises FileNotFoundError, which says where it looked and how to supply the file.
    """
    searched = [Path(folder).expanduser() for folder in folders if folder is not None]
    path = _find_file(name, searched)
    if path is not None:
        return Wad(path)
    fallback = FALLBACKS.get(name)
    path = _find_file(fallback.wad, searched) if fallback else None
    if path is not None:
        _warn_of_fallback(name, fallback)
        return Wad(path, fallback.doom_map)
    looked_in = ", ".join(str(folder) for folder in [*searched, *_package_folders()])
    raise FileNotFoundError(
        f"The map {name} was not found (looked in {looked_in}). Get the file and name its folder with "
        f"--doom_scenarios_dir, or `pip install envpool-assets`, which carries battle and battle2."
    )


def map_names(path: Path) -> list[str]:
    """The maps in a .wad file, in upper case; none for a file of another format."""
    content = path.read_bytes()
    if content[:4] not in (b"PWAD", b"IWAD"):
        return []
    num_lumps, directory = struct.unpack_from("<ii", content, 4)
    entries = [struct.unpack_from("<ii8s", content, directory + 16 * index) for index in range(num_lumps)]
    names = [name.rstrip(b"\0").decode("ascii", "replace").upper() for _, _, name in entries]
    # A map is a name, followed by the lumps with its contents.
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


@functools.cache  # Once per process and map is enough.
def _warn_of_fallback(name: str, fallback: Fallback) -> None:
    log.warning(
        "The map %s comes with no package; %s of %s stands in for it. Results are not comparable with those "
        "on the original, which --doom_scenarios_dir can supply.",
        name,
        fallback.doom_map,
        fallback.wad,
    )
