import signal
import subprocess
import sys
import time

from sample_factory.benchmarking import program as program_module
from sample_factory.benchmarking.program import run_program, usage_of
from tests.runtime.waiting import is_running


def test_a_program_is_watched_until_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "USAGE_SECONDS", 0.1)
    script = "import sys, time; print('here', flush=True); time.sleep(0.6); sys.exit(3)"
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 30)
    assert (ended.exit_code, ended.output) == (3, "here\n")
    assert ended.usages and all(usage.wall_time > ended.began for usage in ended.usages)


def test_a_program_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "GRACE_SECONDS", ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2)))
    deaf = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]\n"
    sleeper = "import time; time.sleep(60)"
    script = (
        f"{deaf}import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {deaf + sleeper!r}], start_new_session=True)\n"
        "print(child.pid, flush=True); child.wait()"
    )
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 2)
    assert ended.exit_code is None
    assert_ended(int(ended.output))


def test_a_usage_has_the_memory_of_each_process_by_its_id():
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        child_pid = int(process.stdout.readline())
        (usage,) = usage_of(process.pid)
        assert {one.pid for one in usage.processes} == {process.pid, child_pid}
        assert all(one.rss_mb > 1 for one in usage.processes)
        assert 0 <= usage.cpu_seconds < usage.machine_seconds
    finally:
        program_module.end(process)
    assert usage_of(process.pid) == []


def assert_ended(pid):
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} is still running"
        time.sleep(0.05)
