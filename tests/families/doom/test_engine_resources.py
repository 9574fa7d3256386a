"""Clean-up after the end of a process that owns engines."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_factory.families.doom.engine_resources import REAPER
from tests.waiting import wait_until

SHARED_MEMORY = Path("/dev/shm")

# The launcher is slow, so that nothing has recorded the names of the message queues when the owner is killed.
OWNER = """
import dataclasses, types
from sample_factory.families.doom import engine_resources
from sample_factory.families.doom.doom_family import DoomFlags
from sample_factory.families.doom.make_doom_env import make_doom_env
engine_resources.LAUNCHER = "#!/bin/sh\\nexec sleep 600\\n"
env = make_doom_env("doom_basic", types.SimpleNamespace(**dataclasses.asdict(DoomFlags()), env_frameskip=4))
env.reset(seed=1)
"""

pytestmark = pytest.mark.skipif(
    not (Path("/proc/self/maps").exists() and SHARED_MEMORY.exists()), reason="looks at files in /dev/shm"
)


def shared_files_of(pid: int) -> set[str]:
    words = Path(f"/proc/{pid}/maps").read_text().split()
    return {word for word in words if word.startswith("/dev/shm/ViZDoom")}


def test_an_owner_killed_in_the_middle_of_a_start_leaves_no_message_queues(tmp_path):
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], env=environment, start_new_session=True)
    try:
        wait_until(lambda: len(shared_files_of(owner.pid)) == 2)
        queues = shared_files_of(owner.pid)
    finally:
        os.killpg(owner.pid, 9)
        owner.wait()
    wait_until(lambda: not list(tmp_path.iterdir()))
    assert not [queue for queue in queues if Path(queue).exists()]


def test_files_in_use_and_files_of_an_earlier_time_are_kept(tmp_path):
    root = tmp_path / "root"
    folder = root / "engine_1"
    folder.mkdir(parents=True)
    (root / "owned").touch()
    (folder / "engine").touch()  # its owner was killed while the launcher wrote the record
    names = ("old", "unused", "open", "mapped")
    files = {name: SHARED_MEMORY / f"ViZDoomTest{name}{os.getpid()}" for name in names}
    try:
        files["old"].write_bytes(b"1")
        os.utime(files["old"], (0, 0))
        (folder / "start").touch()
        for name in ("unused", "open", "mapped"):
            files[name].write_bytes(b"1")
        with open(files["mapped"], "r+b") as opened:
            mapped = mmap.mmap(opened.fileno(), 0)
        with open(files["open"], "rb"), mapped:
            subprocess.run(["/bin/sh", "-c", REAPER, "reaper", root], stdin=subprocess.DEVNULL, check=True)
            assert [name for name in names if files[name].exists()] == ["old", "open", "mapped"]
        assert not root.exists()
    finally:
        for path in files.values():
            path.unlink(missing_ok=True)
