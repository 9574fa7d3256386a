"""The folder that an engine process runs in, and what cleans up when its owner cannot."""

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import vizdoom

ENGINE_PROGRAM = Path(vizdoom.__file__).parent / "vizdoom"

# The engine makes a folder in its current one, hence `cd`. The script notes the process id and the id in the
# names of the engine's shared memory. The engine ignores Ctrl+C, which a terminal sends to all: its owner
# is to end it.
LAUNCHER = """#!/bin/sh
trap '' INT
cd '{folder}' || exit 1
for argument in "$@"; do
    [ "$previous" = "+viz_instance_id" ] && echo "$$ $argument" > engine
    previous=$argument
done
exec '{program}' "$@" {redirection}
"""
# In a net game the engine says a lot; what it says of errors can be read in its folder.
QUIETLY = "> /dev/null 2> said"

# An engine whose owner is killed would wait for it for ever. So a shell waits for the end of the pipe that
# the owner alone holds open; then it ends the engines that are noted in the folders and removes all they
# left.
REAPER = """
trap '' INT TERM HUP
read -r _
for note in "$1"/*/engine; do
    [ -f "$note" ] || continue
    read -r pid instance < "$note"
    # By now the number may be that of another process.
    case "$(cat "/proc/$pid/cmdline" 2> /dev/null | tr '\\0' ' ' || ps -o args= -p "$pid")" in
        *"$instance"*) kill -9 "$pid" ;;
    esac
    rm -f /dev/shm/ViZDoom*"$instance"
done
rm -rf "$1"
"""


class EngineFolder:
    """One engine's folder, outside the user's. `remove` it when the engine is closed.

    is_quiet: what the engine prints does not reach the console, but `last_words`.
    """

    def __init__(self, is_quiet: bool = False):
        self.path = _reaper_of_this_process().add_folder()
        launcher = self.path / "start"
        redirection = QUIETLY if is_quiet else ""
        launcher.write_text(
            LAUNCHER.format(folder=self.path, program=ENGINE_PROGRAM, redirection=redirection)
        )
        launcher.chmod(0o700)
        # Where nothing in the temporary folder may be executed, the engine has to start without all this.
        self.program = launcher if os.access(launcher, os.X_OK) else ENGINE_PROGRAM

    def engine_pid(self) -> int | None:
        """Of the engine that was started here; None where it had to start without the launcher."""
        note = self.path / "engine"
        words = note.read_text().split() if note.exists() else []
        return int(words[0]) if words else None  # it is being written

    def last_words(self) -> str:
        """Of a quiet engine: the last line that it has printed."""
        said = self.path / "said"
        lines = said.read_text(errors="replace").split("\n") if said.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def remove(self) -> None:
        _reaper_of_this_process().remove_folder(self.path)


class _Reaper:
    """The shell that watches over this process, for as long as it has engines."""

    def __init__(self):
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._folders: set[Path] = set()

    def belongs_to_this_process(self) -> bool:
        """False in a forked child, which needs one of its own."""
        return self._owner == os.getpid()

    def add_folder(self) -> Path:
        with self._lock:
            if not self._folders:
                self._start()
            folder = Path(tempfile.mkdtemp(dir=self._root))
            self._folders.add(folder)
            return folder

    def remove_folder(self, folder: Path) -> None:
        with self._lock:
            if folder not in self._folders:
                return
            self._folders.remove(folder)
            shutil.rmtree(folder, ignore_errors=True)
            if not self._folders:
                self._process.stdin.close()
                self._process.wait()

    def _start(self) -> None:
        self._root = tempfile.mkdtemp(prefix="doom_engines_")
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", REAPER, "doom-engine-reaper", self._root],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what kills our process group must not kill it
        )


_reaper = _Reaper()


def _reaper_of_this_process() -> _Reaper:
    global _reaper
    if not _reaper.belongs_to_this_process():
        _reaper = _Reaper()
    return _reaper
