"""The levels of --doom_levels: maps of .wad files."""

import functools
import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.families.doom.game_configuration import find_wad
from sample_factory.families.doom.wad import map_names

FLAG = "--doom_levels"
WITH_MAP = re.compile(r"(.+\.wad):(\w+)", re.IGNORECASE)


def wad_levels(cfg: Any) -> Mapping[str, Mapping[str, Any]]:
    """Returns the levels that --doom_levels lists, one for each map: level -> values of flags. A level is
    named after its .wad file, as in "file", or "file:map" if the file has several maps; where two files have
    the same name, the folder comes first.

    Raises ConfigError for a file or a map that does not exist, and for two levels of one name.
    """
    return _levels(tuple(cfg.doom_levels), cfg.doom_scenarios_dir)


@functools.cache  # reads all files, and each env of a process needs it
def _levels(items: tuple[str, ...], folder: str | None) -> Mapping[str, Mapping[str, Any]]:
    found = dict.fromkeys(level for item in items for level in _levels_of(item, folder))
    names = [name for name, _, _ in found]
    levels: dict[str, dict[str, str]] = {}
    for name, wad, map_name in found:
        unique = f"{wad.parent.name}.{name}" if names.count(name) > 1 else name
        if unique in levels:
            raise ConfigError(f"{FLAG}: {levels[unique]['doom_wad']} and {wad} would both be called {unique}")
        levels[unique] = {"doom_wad": str(wad), "doom_map": map_name}
    return levels


def _levels_of(item: str, folder: str | None) -> Iterator[tuple[str, Path, str]]:
    """Yields (name, .wad file, map) of the levels that an item of --doom_levels names."""
    match = WITH_MAP.fullmatch(item)
    path = Path(item).expanduser()
    try:
        if path.is_dir() or any(mark in item for mark in "*?["):
            files = sorted(map(Path, glob.glob(f"{path}/*.[wW][aA][dD]" if path.is_dir() else str(path))))
        else:
            files = [find_wad(str(Path(match[1]).expanduser() if match else path), [Path(), folder], FLAG)[0]]
        if not files:
            raise ConfigError(f"{FLAG} {item}: there is no .wad file")
        for wad in files:
            maps = [name.lower() for name in map_names(wad)]
            chosen = [match[2].lower()] if match else maps
            if not {*chosen} <= {*maps}:
                raise ConfigError(f"{FLAG}: {wad} has no map {chosen[0]}; it has {', '.join(maps)}")
            for name in chosen:
                yield wad.stem if len(maps) == 1 else f"{wad.stem}:{name}", wad.absolute(), name
    except (FileNotFoundError, ValueError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"{FLAG} {item}: {error}") from None
