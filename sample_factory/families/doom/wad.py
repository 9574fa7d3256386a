"""Reads .wad files: the names of their maps, and the starts of the players in each map."""

import itertools
import re
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

from sample_factory.families.doom.doom_family import MatchSpec

# Numbers of things: https://zdoom.org/wiki/Standard_editor_numbers
PLAYER_STARTS = (1, 2, 3, 4, 4001, 4002, 4003, 4004)  # of players 1 to 8
DEATHMATCH_START = 11
HEADER = struct.Struct("<4sii")  # kind of file, number of lumps, offset of the directory
ENTRY = struct.Struct("<ii8s")  # of the directory: offset, size and name of a lump
# Lumps that may lie between THINGS and BEHAVIOR, which only the maps in Hexen's format have.
LUMPS = ("LINEDEFS", "SIDEDEFS", "VERTEXES", "SEGS", "SSECTORS", "NODES", "SECTORS", "REJECT", "BLOCKMAP")
# Layout of a thing in a map of Doom's and of Hexen's format: (format, which of its numbers is the type).
DOOM_THING = (struct.Struct("<5h"), 3)
HEXEN_THING = (struct.Struct("<7h6B"), 5)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
UDMF_THING = re.compile(r"\bthing\s*\{([^}]*)\}", re.IGNORECASE)
UDMF_TYPE = re.compile(r"\btype\s*=\s*(\d+)", re.IGNORECASE)


class Starts(NamedTuple):
    """Counts the starting points of a map.

    players: starts for single-player and cooperative games. has_first: whether player 1 has a start.
    deathmatch: starts for deathmatches; any player can use any of them.
    """

    players: int
    has_first: bool
    deathmatch: int


class _Lump(NamedTuple):
    """An entry of a .wad file's directory: the name, in upper case, and the offset and size of the data in
    bytes."""

    name: str
    offset: int
    size: int


def map_names(path: Path) -> list[str]:
    """Returns the names, in upper case, of the maps in a .wad file or a ZDoom zip file. Raises ValueError for
    a file of another format, a truncated file, and a file without maps."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            files = [Path(name.upper()) for name in archive.namelist()]
        maps = [file.stem for file in files if file.match("MAPS/*.WAD")]
    else:
        # A map's name is a lump that is followed by the lumps with the map's contents.
        pairs = itertools.pairwise(_lumps(path))
        maps = [lump.name for lump, following in pairs if following.name in ("TEXTMAP", "THINGS")]
    if not maps:
        raise ValueError(f"{path} has no maps")
    return maps


def count_starts(path: Path, map_name: str) -> Starts | None:
    """Counts the points of a map at which players can start, by the games they are for. map_name: one of
    `map_names`. Returns None for a zip file, whose maps are not read."""
    if zipfile.is_zipfile(path):
        return None
    lumps = _lumps(path)
    names = [lump.name for lump in lumps]
    first = 1 + max(
        place
        for place, pair in enumerate(itertools.pairwise(names))
        if pair[0] == map_name.upper() and pair[1] in ("TEXTMAP", "THINGS")
    )
    with path.open("rb") as file:
        file.seek(lumps[first].offset)
        content = file.read(lumps[first].size)
    if names[first] == "TEXTMAP":
        text = COMMENT.sub("", content.decode("latin-1"))
        found = (UDMF_TYPE.search(thing) for thing in UDMF_THING.findall(text))
        types = [int(match[1]) for match in found if match]
    else:
        following = itertools.dropwhile(LUMPS.__contains__, names[first + 1 :])
        layout, place = HEXEN_THING if next(following, "") == "BEHAVIOR" else DOOM_THING
        whole = content[: len(content) // layout.size * layout.size]
        types = [thing[place] for thing in layout.iter_unpack(whole)]
    players = [number for number in types if number in PLAYER_STARTS]
    return Starts(len(players), 1 in players, types.count(DEATHMATCH_START))


def check_starts(path: Path, map_name: str, match: MatchSpec | None, env_name: str) -> None:
    """Raises ValueError for a map without the starts that the game needs.

    ViZDoom 1.3.2 crashes without a start of the right kind; in cooperation, players without a start each
    begin inside other players.
    """
    starts = count_starts(path, map_name)
    if starts is None:
        return
    lack = ""
    if match is None:
        if not starts.has_first:
            lack = "no start of player 1"
            if starts.deathmatch:
                lack += f", but {starts.deathmatch} deathmatch starts: it needs a MatchSpec"
    elif match.deathmatch:
        if not starts.deathmatch:
            lack = "no deathmatch starts; play it with MatchSpec(deathmatch=False)"
    elif starts.players < (players := match.num_engines + match.num_bots):
        lack = f"{starts.players} starts for {players} players"
    if lack:
        raise ValueError(f"{env_name}: {map_name} of {path} has {lack}")


def _lumps(path: Path) -> list[_Lump]:
    """Returns the directory of a .wad file. Raises ValueError for a file of another format."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        if header[:4] not in (b"PWAD", b"IWAD"):
            raise ValueError(f"{path} is no .wad file")
        _, num_lumps, directory = HEADER.unpack(header.ljust(HEADER.size, b"\0"))
        file.seek(directory)
        entries = file.read(ENTRY.size * num_lumps)
    if len(entries) < ENTRY.size * num_lumps:
        raise ValueError(f"{path} is cut off: it lacks its directory of {num_lumps} lumps")
    return [
        _Lump(name.split(b"\0")[0].decode("ascii", "replace").upper(), offset, size)
        for offset, size, name in ENTRY.iter_unpack(entries)
    ]
