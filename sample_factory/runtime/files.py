"""Opens files by name where something else may lie: an archive or another account can put a named pipe, a
device or a socket there. Opening one can wait forever, or act on hardware."""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: str | os.PathLike[str], mode: str = "r", **options: Any) -> IO[Any]:
    """Opens a file as `open` does. Raises OSError for anything that is not a regular file, without a wait."""
    return open(path, mode, opener=_open, **options)


def read_bytes(path: Path) -> bytes:
    """Returns the contents of a file. Raises OSError, also for anything that is not a regular file."""
    with open_file(path, "rb") as file:
        return bytes(file.read())


def special_kind(mode: int) -> str | None:
    """Returns in words what a file of this mode is (`st_mode`); None for a regular file or a folder."""
    return KINDS.get(stat.S_IFMT(mode))


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raises OSError for a named pipe, a device or a socket. For files that a library opens by name."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    _check(path, mode)


def _open(path: str, flags: int) -> int:
    refuse_special(path)  # first: opening a device can have effects
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    try:
        _check(path, os.fstat(fd).st_mode)  # another one may have been put there meanwhile
    except OSError:
        os.close(fd)
        raise
    return fd


def _check(path: str | os.PathLike[str], mode: int) -> None:
    kind = special_kind(mode)
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
