"""Opens files by name where something else may lie: an archive or another account can put a named pipe, a
device or a socket there. Opening one can wait forever, or act on hardware."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def special_kind(mode: int) -> str | None:
    """Returns what a file is by its `st_mode`: "a named pipe", "a socket" or "a device"; None for any other
    file."""
    return KINDS.get(stat.S_IFMT(mode))


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raises OSError if a path is a named pipe, a device or a socket. The path need not exist.
    For files that a library opens by name."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    _check(path, mode)


def open_descriptor(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Opens a file as `os.open` does. Raises OSError, at once, for a named pipe, a device or a socket, and
    for a link if the file is to be written."""
    refuse_special(path)  # first: opening a device can have effects
    if flags & os.O_ACCMODE != os.O_RDONLY:
        flags |= os.O_NOFOLLOW
        if os.path.islink(path):
            raise OSError(
                errno.ELOOP, f"{Path(path).name} is a link, and not written through", os.fspath(path)
            )
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    try:
        _check(path, os.fstat(fd).st_mode)  # another one may have been put there meanwhile
    except OSError:
        os.close(fd)
        raise
    return fd


def open_file(path: str | os.PathLike[str], mode: str = "r", **options: Any) -> Any:
    """Opens a file as `open` does. Raises OSError for a named pipe, a device or a socket, and for a link if
    the file is to be written."""
    return open(path, mode, opener=open_descriptor, **options)


def new_file(path: str | os.PathLike[str], mode: str = "w", **options: Any) -> Any:
    """Creates a file and opens it for writing. Replaces a file of this name, and a link without following it.
    mode: "w" for text or "wb" for bytes."""
    Path(path).unlink(missing_ok=True)
    return open(path, mode.replace("w", "x"), **options)


def _check(path: str | os.PathLike[str], mode: int) -> None:
    kind = special_kind(mode)
    if kind is not None:
        raise OSError(errno.EINVAL, f"{Path(path).name} is {kind}, not a file", os.fspath(path))
