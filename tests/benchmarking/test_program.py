import re
import signal
import subprocess
import sys
import time

from sample_factory.benchmarking import program as program_module
from sample_factory.benchmarking.program import run_program, usage_of
from tests.runtime.waiting import is_running

NEVER_SEEN = re.compile("never seen")


def test_a_program_is_watched_until_its_end(tmp_path):
    script = "import sys, time; time.sleep(0.4); print('here', flush=True); time.sleep(0.4); sys.exit(3)"
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 30, re.compile("here"))
    assert (ended.exit_code, ended.output) == (3, "here\n")
    assert 0.3 < ended.sign_seconds < 5


def test_a_program_that_takes_too_long_is_killed_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "GRACE_SECONDS", ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2)))
    deaf = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]\n"
    sleeper = "import time; time.sleep(60)"
    script = (
        f"{deaf}import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {deaf + sleeper!r}], start_new_session=True)\n"
        "print(child.pid, flush=True); child.wait()"
    )
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 2, NEVER_SEEN)
    assert (ended.exit_code, ended.sign_seconds) == (None, None)
    assert_ended(int(ended.output))


def test_a_usage_names_the_children(tmp_path):
    sleep = "import time; time.sleep(60)"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {sleep!r}, 'learner_0'])\n"
        f"subprocess.Popen([sys.executable, '-c', {sleep!r}])\n"
        "time.sleep(60)"
    )
    process, expected = subprocess.Popen([sys.executable, "-c", script]), {"main", "learner_0", "others"}
    try:
        deadline = time.monotonic() + 20
        # A child that has just been forked still has its parent's command line.
        while {one.name for one in usage_of(process.pid)[0].processes} != expected:
            assert time.monotonic() < deadline, usage_of(process.pid)
            time.sleep(0.05)
        (usage,) = usage_of(process.pid)
        assert all(one.rss_mb > 1 for one in usage.processes)
        assert 0 <= usage.cpu_seconds < usage.machine_seconds
    finally:
        program_module.end(process)
    assert usage_of(process.pid) == []


def assert_ended(pid):
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.05)
