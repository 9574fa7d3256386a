"""Starts Ray on this machine. Ray is an extra, and is imported only here and where it is used."""

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sample_factory.runtime.command_failed import CommandFailed

MAX_FOLDER = 40  # characters: Ray adds 62 for its sockets, whose path may have 107
MAX_STARTS = 4


@contextlib.contextmanager
def keeping_sigterm() -> Iterator[None]:
    """In the main thread: restores the handler of SIGTERM, which ray.init replaces by one that exits."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


class LocalRay:
    """A Ray that belongs to this process, with a folder for its files, which `close` removes."""

    def __init__(self, flag: str, files: Path, options: dict[str, Any]):
        """flag: named in errors. files: an absolute path; the folder lies in it if its path is short.

        options: of ray.init. Raises CommandFailed if Ray does not start.
        """
        import ray

        self._ray: Any = ray
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex())  # otherwise Ray writes one to ~/.ray
        self._folder = _short_folder(files)
        try:
            self._start(flag, options)
        except BaseException:
            self.close()
            raise

    def _start(self, flag: str, options: dict[str, Any]) -> None:
        for attempt in range(1, MAX_STARTS + 1):
            try:
                with keeping_sigterm():
                    self._ray.init(include_dashboard=False, _temp_dir=self._folder, **options)
                return
            except Exception as error:  # Ray raises a bare Exception after 30 s, e.g. on a busy machine
                self._ray.shutdown()
                if attempt == MAX_STARTS:
                    raise CommandFailed(f"{flag}: Ray does not start: {error}") from None

    def close(self) -> None:
        """Ends Ray."""
        self._ray.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _short_folder(files: Path) -> str:
    """Returns a new folder, whose path is short enough for Ray's sockets: in `files` if possible."""
    is_short = len(str(files)) < MAX_FOLDER - len("/r12345678")
    if is_short:
        files.mkdir(parents=True, exist_ok=True)
    return tempfile.mkdtemp(prefix="r", dir=files if is_short else None)
