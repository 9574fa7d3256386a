"""Reads .wad files: the names of their maps, and the starts of each map."""

import itertools
import re
import struct
from pathlib import Path
from typing import NamedTuple

# Numbers of things: https://zdoom.org/wiki/Standard_editor_numbers
PLAYER_STARTS = (1, 2, 3, 4, 4001, 4002, 4003, 4004)  # of players 1 to 8
DEATHMATCH_START = 11
HEADER = struct.Struct("<4sii")  # kind of file, number of lumps, offset of the directory
ENTRY = struct.Struct("<ii8s")  # of the directory: offset, size and name of a lump
# Lumps that may lie between THINGS and BEHAVIOR, which only the maps in Hexen's format have.
BINARY_LUMPS = "LINEDEFS SIDEDEFS VERTEXES SEGS SSECTORS NODES SECTORS REJECT BLOCKMAP".split()
# Layout of a thing in a map of Doom's and of Hexen's format: (format, which of its numbers is the type).
DOOM_THING = (struct.Struct("<5h"), 3)
HEXEN_THING = (struct.Struct("<7h6B"), 5)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
UDMF_THING = re.compile(r"\bthing\s*\{([^}]*)\}", re.IGNORECASE)
UDMF_TYPE = re.compile(r"\btype\s*=\s*(\d+)", re.IGNORECASE)


class Starts(NamedTuple):
    """Where players can start in a map.

    players: of the games for one player and in cooperation. has_first: whether one of these is player 1's.
    deathmatch: of a deathmatch, for any player.
    """

    players: int
    has_first: bool
    deathmatch: int


class _Lump(NamedTuple):
    """A part of a .wad file. name: in upper case."""

    name: str
    offset: int
    size: int

    def read(self, path: Path) -> bytes:
        with path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def map_names(path: Path) -> list[str]:
    """Returns the names of the maps in a .wad file, in upper case; none for a file of another format.

    Raises ValueError for a file that is cut off.
    """
    # A map's name is a lump that is followed by the lumps with the map's contents.
    pairs = itertools.pairwise(_lumps(path))
    return [lump.name for lump, following in pairs if following.name in ("TEXTMAP", "THINGS")]


def count_starts(path: Path, map_name: str) -> Starts:
    """Counts the starts of a map that is in `map_names`. Raises ValueError for a file that is cut off."""
    lumps = _lumps(path)
    names = [lump.name for lump in lumps]
    first = 1 + max(
        place
        for place, pair in enumerate(itertools.pairwise(names))
        if pair[0] == map_name.upper() and pair[1] in ("TEXTMAP", "THINGS")
    )
    content = lumps[first].read(path)
    if names[first] == "TEXTMAP":
        text = COMMENT.sub("", content.decode("latin-1"))
        found = (UDMF_TYPE.search(thing) for thing in UDMF_THING.findall(text))
        types = [int(match[1]) for match in found if match]
    else:
        following = itertools.dropwhile(BINARY_LUMPS.__contains__, names[first + 1 :])
        layout, place = HEXEN_THING if next(following, "") == "BEHAVIOR" else DOOM_THING
        whole = content[: len(content) // layout.size * layout.size]
        types = [thing[place] for thing in layout.iter_unpack(whole)]
    players = [number for number in types if number in PLAYER_STARTS]
    return Starts(len(players), 1 in players, types.count(DEATHMATCH_START))


def _lumps(path: Path) -> list[_Lump]:
    """Returns the directory of a .wad file; [] for a file of another format."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        if header[:4] not in (b"PWAD", b"IWAD"):
            return []
        _, num_lumps, directory = HEADER.unpack(header.ljust(HEADER.size, b"\0"))
        file.seek(directory)
        entries = file.read(ENTRY.size * num_lumps)
    if len(entries) < ENTRY.size * num_lumps:
        raise ValueError(f"{path} is cut off: it lacks its directory of {num_lumps} lumps")
    return [
        _Lump(name.split(b"\0")[0].decode("ascii", "replace").upper(), offset, size)
        for offset, size, name in ENTRY.iter_unpack(entries)
    ]
