"""Operating-system resources of engine processes: folders, their clean-up, UDP ports."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import vizdoom

from sample_factory.runtime.programs import unmarked_environment

ENGINE_PROGRAM = Path(vizdoom.__file__).parent / "vizdoom"

# The engine creates a folder in its working directory, hence `cd`. The script writes the process id, and the
# id in the names of the engine's shared memory, to the file `engine`. If the owner is gone, the engine is
# not started, because the reaper may already have looked for that file. The engine ignores Ctrl+C, which a
# terminal sends to all processes: its owner ends it.
LAUNCHER = """#!/bin/sh
trap '' INT
cd '{folder}' || exit 1
for argument in "$@"; do
    [ "$previous" = "+viz_instance_id" ] && echo "$$ $argument" > engine
    previous=$argument
done
[ -e ../owned ] || exit 1
exec '{program}' "$@" {redirection}
"""
# In a net game the engine prints a lot. Its error messages are kept in its folder.
QUIETLY = "> /dev/null 2> errors"

# An engine whose owner is killed would wait for it forever. So a shell waits for the end of a pipe that only
# the owner holds open. Then it ends the engines that are recorded in the folders and removes their files.
#
# An owner that is killed in the middle of a start leaves message queues, which it has created, and no record,
# which the launcher writes later. These queues are the files that are not older than the launcher and that no
# process has open. They are listed first: a process has a file open from its creation to the end of its use,
# as a descriptor at first and then in its memory map.
REAPER = """
trap '' INT TERM HUP
remove_unused() {
    files=$(ls -d /dev/shm/ViZDoom* 2> /dev/null)
    used=$({ ls -l /proc/[0-9]*/fd; cat /proc/[0-9]*/maps; } 2> /dev/null | grep -o '/dev/shm/ViZDoom[^ ]*')
    for file in $files; do
        [ -O "$file" ] && [ ! "$1" -nt "$file" ] || continue
        echo "$used" | grep -qxF "$file" || rm -f "$file"
    done
}
read -r _
rm "$1/owned"
for launcher in "$1"/*/start; do
    [ -f "$launcher" ] || continue
    instance=
    [ -f "${launcher%start}engine" ] && read -r pid instance < "${launcher%start}engine"
    if [ -z "$instance" ]; then
        remove_unused "$launcher"
        continue
    fi
    # The process id may have been reused by another process.
    case "$(cat "/proc/$pid/cmdline" 2> /dev/null | tr '\\0' ' ' || ps -o args= -p "$pid")" in
        *"$instance"*) kill -9 "$pid" ;;
    esac
    rm -f /dev/shm/ViZDoom*"$instance"
done
rm -rf "$1"
"""


class EngineFolder:
    """Makes a working directory for one engine process, outside the user's folders. Call `remove` when the
    process has ended. is_quiet: hides the engine's output, and keeps it for `last_error`."""

    def __init__(self, is_quiet: bool = False):
        self.path = _reaper_of_this_process().add_folder()
        launcher = self.path / "start"
        redirection = QUIETLY if is_quiet else ""
        launcher.write_text(
            LAUNCHER.format(folder=self.path, program=ENGINE_PROGRAM, redirection=redirection)
        )
        launcher.chmod(0o700)
        # If the temporary folder is mounted noexec, the engine has to start without the launcher.
        self.program = launcher if os.access(launcher, os.X_OK) else ENGINE_PROGRAM

    def engine_pid(self) -> int | None:
        """Returns the engine's process id; None before its start, or if it had to start without
        the shell script that records the id."""
        record = self.path / "engine"
        words = record.read_text().split() if record.exists() else []
        return int(words[0]) if words else None  # no words: it is just being written

    def last_error(self) -> str:
        """Returns the last line of the error output of a quiet engine; "" if there is none."""
        errors = self.path / "errors"
        lines = errors.read_text(errors="replace").split("\n") if errors.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def remove(self) -> None:
        _reaper_of_this_process().remove_folder(self.path)


class _Reaper:
    """Runs a shell that ends the engines of this process, and removes their folders, if this process is
    killed. The shell ends when the last folder is removed. Thread-safe."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def add_folder(self) -> Path:
        """Makes an empty folder for an engine, and returns it; for the first folder, starts the shell that
        cleans up if this process is killed."""
        with self._lock:
            if not self._folders:
                self._start()
            folder = Path(tempfile.mkdtemp(dir=self._root))
            self._folders.add(folder)
            return folder

    def remove_folder(self, folder: Path) -> None:
        """Removes an engine's folder; after the last one, ends the shell that `add_folder` has started."""
        with self._lock:
            if folder not in self._folders:
                return
            self._folders.remove(folder)
            shutil.rmtree(folder, ignore_errors=True)
            if not self._folders:
                self._stop()

    def _start(self) -> None:
        self._root = tempfile.mkdtemp(prefix="doom_engines_")
        (Path(self._root) / "owned").touch()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", REAPER, "doom-engine-reaper", self._root],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals to our process group must not reach it
            env=unmarked_environment(),  # nor the end of this process
        )

    def _stop(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


_reaper = _Reaper()


def _reaper_of_this_process() -> _Reaper:
    global _reaper
    if _reaper.owner != os.getpid():  # in a forked child
        _reaper = _Reaper()
    return _reaper


LOOPBACK = "127.0.0.1"
PORT_ATTEMPTS = 100
LOWEST_PORT = 10_000
HIGHEST_PORT = 60_000
MIN_NUM_PORTS = 1_000
# Linux: the first and last ephemeral port.
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_EPHEMERAL_START = 32_768


class PortClaim:
    """Reserves a free UDP port, which no other claim on this machine gets until `release`.

    Two engines must never get the same port: besides the failed start, ViZDoom 1.3 crashes the process whose
    engine ends while it starts. The claim is a TCP socket bound to the same number: the operating system
    gives a number to one socket only, and frees it when the process ends in any way. The number is below the
    ephemeral ports, which joining engines get.

    Raises OSError if no port is left.
    """

    def __init__(self) -> None:
        # The global generator may have been seeded alike in all processes.
        draw = random.SystemRandom()
        file = EPHEMERAL_RANGE_FILE
        end = int(file.read_text().split()[0]) if file.exists() else USUAL_EPHEMERAL_START
        numbers = range(LOWEST_PORT, end if end - LOWEST_PORT >= MIN_NUM_PORTS else HIGHEST_PORT)
        for _ in range(PORT_ATTEMPTS):
            self.number = draw.choice(numbers)
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            if _binds(self._socket, LOOPBACK, self.number) and is_free(self.number):
                return
            self._socket.close()
        raise OSError(
            f"no free UDP port found in {PORT_ATTEMPTS} attempts between {numbers.start} and {numbers.stop}"
        )

    def release(self) -> None:
        self._socket.close()


def is_free(port: int) -> bool:
    """Returns whether a UDP port is used by no program on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return _binds(probe, "", port)


def _binds(sock: socket.socket, host: str, number: int) -> bool:
    try:
        sock.bind((host, number))
    except OSError:
        return False
    return True
