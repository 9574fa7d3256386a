"""Writes .wad files for tests, made from those of the package vizdoom."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from sample_factory.families.doom.game_configuration import find_wad

THING = re.compile(rb"thing\s*\{[^}]*\}")


def write_wad(path: Path, lumps: Sequence[tuple[str, bytes]]) -> Path:
    """Writes a file with these lumps, (name, content), in this order."""
    content = b"".join(data for _, data in lumps)
    entries, offset = b"", 12
    for name, data in lumps:
        entries += struct.pack("<ii8s", offset, len(data), name.encode())
        offset += len(data)
    path.write_bytes(struct.pack("<4sii", b"PWAD", len(lumps), offset) + content + entries)
    return path


def with_starts(path: Path, starts: Sequence[int], source: str = "basic.wad") -> Path:
    """Copies a map of vizdoom's with these types of starts, 64 units apart, in place of its own one."""
    content = find_wad(source)[0].read_bytes()
    _, num_lumps, directory = struct.unpack_from("<4sii", content)
    lumps = []
    for number in range(num_lumps):
        offset, size, name = struct.unpack_from("<ii8s", content, directory + 16 * number)
        data = content[offset : offset + size]
        if name.startswith(b"TEXTMAP"):
            own = THING.search(data)
            assert own is not None
            copies = [
                re.sub(rb"type = 1;", b"type = %d;" % start, own[0]).replace(
                    b"y = 32.000;", b"y = %d.0;" % (32 + 64 * place)
                )
                for place, start in enumerate(starts)
            ]
            data = data.replace(own[0], b"\n".join(copies))
        lumps.append((name.rstrip(b"\0").decode(), data))
    return write_wad(path, lumps)
