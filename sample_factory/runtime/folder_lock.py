"""Prevents two runs from using one folder."""

import errno
import fcntl
import os
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

from sample_factory.runtime.log import log
from sample_factory.runtime.safe_files import open_descriptor

NAME = ".lock"


class FolderInUse(Exception):
    """Raised if another run uses a folder; the message names the process that holds the folder."""


class FolderLock:
    """Locks a folder for one run, from construction until `release` or the end of the process. Promises:

    1. One run holds a folder at a time. A child that receives the lock among its arguments holds it too: the
       folder is free once all holders have ended, even by kill -9.
    2. Nothing needs to be cleaned up: the file that stays in the folder locks nothing by itself.
    """

    def __init__(self, folder: Path):
        """Locks the folder. Raises FolderInUse if another run holds it, OSError if it is not writable."""
        # Another account that could open the file could hold the folder.
        self._fd = open_descriptor(folder / NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(folder)
        except BaseException:
            self.release()
            raise

    def _lock(self, folder: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(self._fd, 20).decode(errors="replace").strip()
            raise FolderInUse(
                f"process {pid or '?'} or one of its children is training in {folder}"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            log.warning("%s cannot be locked (%s): make sure that one run uses it", folder, error.strerror)
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)
        except OSError:  # the disk is full
            (folder / NAME).unlink()
            raise

    def release(self) -> None:
        """Releases the lock in this process. Does nothing if it has been released."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __getstate__(self) -> Any:
        context.assert_spawning(self)
        return reduction.DupFd(self._fd)

    def __setstate__(self, passed_fd: Any) -> None:
        """In the child: unpickles the lock, which parent and child then hold together. `passed_fd`:
        descriptor of the locked file."""
        self._fd = passed_fd.detach()
