"""The process around a run: how each end of the command is reported, and that nothing is left running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.runner.run_job import Job, main, run_job
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(120)  # seconds

# Reports that it runs, saves on SIGTERM.
SAVES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit(0)))
pathlib.Path("started").touch()
while True:
    time.sleep(0.05)
"""

# Ends as a training does, with the status and in the experiment folder of its arguments.
ENDS = """
import pathlib, sys
from sample_factory.mainloop.run_result import RunResult, write_result
write_result(RunResult(sys.argv[1], "", pathlib.Path(sys.argv[2])))
"""


@pytest.fixture
def make_job(tmp_path, monkeypatch):
    """Returns a function: command -> a Job whose order is written, with `tmp_path` as working directory."""
    monkeypatch.chdir(tmp_path)

    def make(*command, **env_vars):
        job = Job(command, tmp_path / "00_a", tmp_path, env_vars)
        job.write_order()
        return job

    return make


@pytest.fixture
def run(monkeypatch):
    """Returns a function that runs a job in this process, whose signal handlers are restored."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield lambda job: run_job(Job.read(job.order))
    for number, handler in handlers.items():
        signal.signal(number, handler)


def start(job):
    """Starts the process as a backend does."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "sample_factory.runner.run_job", str(job.order)],
        env=env,
        start_new_session=True,
    )


def test_exit_code_0_is_finished_and_the_output_is_in_the_log(make_job, run):
    job = make_job("python", "-c", "import os; print('seen', os.environ['OWN'])", OWN="value")
    assert run(job).state == job.read_current().state == "finished"
    assert job.is_finished()
    assert job.log.read_text() == "seen value\n"


def test_another_exit_code_is_failed_with_the_reason(make_job, run):
    state = run(make_job("python", "-c", "raise SystemExit(3)"))
    assert (state.state, state.exit_code, state.reason) == ("failed", 3, "exit code 3")


def test_a_killed_run_is_failed_and_names_the_signal(make_job, run):
    state = run(make_job("python", "-c", "import os; os.kill(os.getpid(), 9)"))
    assert (state.state, state.reason) == ("failed", "killed by SIGKILL")


def test_a_program_that_does_not_exist_is_failed_with_its_name(make_job, run):
    state = run(make_job("no_such_program"))
    assert (state.state, state.reason) == (
        "failed",
        "cannot start no_such_program: No such file or directory",
    )


@pytest.mark.parametrize("leaves_folder", [True, False])
@pytest.mark.parametrize(("status", "expected"), [("done", "finished"), ("stopped", "stopped")])
def test_a_training_run_that_was_stopped_is_not_finished_though_its_exit_code_is_0(
    make_job, run, tmp_path, status, expected, leaves_folder
):
    folder = tmp_path / "00_a"
    if leaves_folder:
        folder.mkdir()
    job = make_job("python", "-c", ENDS, status, str(folder), PYTHONPATH=str(ROOT))
    assert run(job).state == expected and job.is_finished() == (expected == "finished")
    assert folder.exists() == leaves_folder
    job = make_job("python", "-c", "")
    assert run(job).state == (expected if leaves_folder else "finished"), "the last result of a folder stays"


def test_another_command_under_the_name_of_a_finished_one_is_not_finished(make_job, run):
    run(make_job("python", "-c", ""))
    job = make_job("python", "-c", "pass")
    assert not job.is_finished()
    assert job.read_current() is None  # the state is that of the first order


def test_sigterm_is_forwarded_and_the_run_counts_as_stopped(make_job, tmp_path):
    job = make_job("python", "-c", SAVES)
    process = start(job)
    wait_until((tmp_path / "started").exists)
    process.terminate()
    assert process.wait() == 0
    assert (tmp_path / "saved").exists()
    assert job.read_current().state == "stopped"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"attempt": 1}',
        '{"attempt": "x", "command": [], "state": "finished"}',
        '{"attempt": 1, "command": [], "state": 7}',
    ],
)
def test_files_that_the_runner_has_not_written_are_one_line(make_job, text, capsys):
    job = make_job("true")
    job.state.write_text(text)
    assert "00_a.state.json" in job.read_state().reason and not job.is_finished()
    job.order.write_text(text)
    assert main([str(job.order)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_named_pipes_among_the_files_of_a_job_are_not_waited_for(make_job):
    job = make_job("true")
    for path in (job.state, job.order, job.log):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    assert "named pipe" in job.read_state().reason
    with pytest.raises(ConfigError, match="named pipe"):
        Job.read(job.order)
    with pytest.raises(OSError, match="named pipe"):
        job.last_line()
