"""Commands: how they end with their parent, and when asked."""

import signal
import subprocess
import sys
from pathlib import Path

from sample_factory.runtime.programs import Program
from tests.waiting import is_alive, kill_9, wait_until

ROOT = Path(__file__).parents[2]
PARENT = """
import sys, time
from sample_factory.runtime.programs import Program
print(Program([sys.executable, "-c", sys.argv[1]]).pid, flush=True)
time.sleep(600)
"""
SAVES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit(0)))
pathlib.Path("started").touch()
time.sleep(600)
"""


def test_a_program_gets_sigterm_when_its_parent_is_killed(tmp_path):
    command = [sys.executable, "-c", PARENT, SAVES]
    parent = subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    wait_until((tmp_path / "started").exists)
    kill_9(parent.pid)
    parent.communicate()
    wait_until(lambda: not is_alive(pid))
    assert (tmp_path / "saved").exists()


def test_a_program_that_ignores_each_request_is_killed_with_what_it_has_started(tmp_path):
    ends = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(child.pid, flush=True); child.wait()"
    script = f"import signal, subprocess; child = subprocess.Popen(['/bin/sleep', '600']); {ends}"
    output = tmp_path / "output"
    with open(output, "wb") as file:
        program = Program([sys.executable, "-c", script], file)
    wait_until(lambda: output.read_text().endswith("\n"))
    program.end((signal.SIGTERM, 0.2))
    assert program.returncode == -signal.SIGKILL
    wait_until(lambda: not is_alive(int(output.read_text())))
