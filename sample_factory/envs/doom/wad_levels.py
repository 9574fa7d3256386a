"""The levels of --doom_levels: maps of .wad files."""

import functools
import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.flags import ConfigError
from sample_factory.envs.doom.game_configuration import find_wad
from sample_factory.envs.doom.wad import map_names

FLAG = "--doom_levels"
WITH_MAP = re.compile(r"(.+\.wad):(\w+)", re.IGNORECASE)


class _Map(NamedTuple):
    wad: Path
    name: str  # in lower case
    is_alone: bool  # in the file

    def level_name(self, folder: str = "") -> str:
        stem = f"{folder}{self.wad.stem}"
        return stem if self.is_alone else f"{stem}:{self.name}"


def wad_levels(cfg: Any) -> Mapping[str, Mapping[str, Any]]:
    """Returns the values of the flags for each map that --doom_levels lists, by level. A level is called like
    its file, followed by the map if the file has several.

    Raises ConfigError for a file or a map that there is not.
    """
    return _levels(tuple(cfg.doom_levels), cfg.doom_scenarios_dir)


@functools.cache  # reads all files, and each env of a process needs it
def _levels(items: tuple[str, ...], folder: str | None) -> Mapping[str, Mapping[str, Any]]:
    maps = [found for item in items for found in _maps(item, folder)]
    names = [found.level_name() for found in maps]
    levels = {}
    for found, name in zip(maps, names):
        # Two folders may have files of the same name.
        unique = name if names.count(name) == 1 else found.level_name(f"{found.wad.parent.name}.")
        levels[unique] = {"doom_wad": str(found.wad), "doom_map": found.name}
    return levels


def _maps(item: str, folder: str | None) -> list[_Map]:
    """Returns the maps that an item means: a .wad file, one of its maps, a folder, or a pattern."""
    match = WITH_MAP.fullmatch(item)
    path = Path(item).expanduser()
    if path.is_dir():
        files = sorted(own for own in path.iterdir() if own.suffix.lower() == ".wad")
    elif any(mark in item for mark in "*?["):
        files = sorted(map(Path, glob.glob(str(path))))
    else:
        try:
            files = [find_wad(match[1] if match else item, [Path(), folder], FLAG)[0]]
        except FileNotFoundError as error:
            raise ConfigError(f"{FLAG} {item}: {error}") from None
    if not files:
        raise ConfigError(f"{FLAG} {item}: there is no .wad file")
    return [found for file in files for found in _maps_of(file.absolute(), match[2] if match else None)]


def _maps_of(wad: Path, chosen: str | None) -> list[_Map]:
    try:
        maps = [name.lower() for name in map_names(wad)]
    except ValueError as error:
        raise ConfigError(f"{FLAG}: {error}") from None
    if chosen is not None and chosen.lower() not in maps:
        raise ConfigError(f"{FLAG}: {wad} has no map {chosen}; it has {', '.join(maps)}")
    names = maps if chosen is None else [chosen.lower()]
    return [_Map(wad, name, len(maps) == 1) for name in names]
