import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from sample_factory.__main__ import command
from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER, sample
from sample_factory.launch.command_line import parse
from sample_factory.monitoring.figures import read_figures
from tests.waiting import alive, wait_until


def run(env, *typed):
    """Returns the frames of each worker, the frames of all, their seconds, and their FPS."""
    flags = [f"--env={env}", "--num_workers=2", "--worker_num_splits=1", *typed]
    *workers, total = sample(parse(DUMMY_SAMPLER, flags))
    frames, seconds, fps = (float(number) for number in re.findall(r"[0-9.]+", total))
    return [int(line.split()[2]) for line in workers], int(frames), seconds, fps


def children() -> set[psutil.Process]:
    return {*psutil.Process().children(recursive=True)}


def test_each_worker_ends_after_its_frames_with_the_frameskip_and_nothing_is_left(tmp_path):
    before = children()
    file = tmp_path / "figures.jsonl"
    flags = ("--num_envs_per_worker=3", "--env_frameskip=4", "--sample_env_frames_per_worker=3001")
    of_workers, env_frames, seconds, fps = run("gym_CartPole-v1", *flags, f"--figures_file={file}")
    assert of_workers == [3012, 3012] and env_frames == 6024 and fps > 0
    assert not children() - before

    figures = read_figures(file)
    assert (figures[0].seconds, figures[0].env_frames) == (0.0, 0)
    assert (figures[-1].seconds, figures[-1].env_frames) == (pytest.approx(seconds, abs=0.05), 6024)


def test_stops_after_the_frames_of_all_workers():
    of_workers, env_frames, _, _ = run("gym_CartPole-v1", "--sample_env_frames=20000")
    assert env_frames >= 20000 and min(of_workers) > 0


def test_stops_after_the_time_with_engines_too():
    before = children()
    of_workers, _, seconds, _ = run("doom_benchmark", "--num_envs_per_worker=2", "--timeout_seconds=1")
    assert 0.5 < seconds < 20
    assert all(frames % 8 == 0 and frames > 0 for frames in of_workers)
    assert not children() - before


def test_the_command_of_v1_works(capsys):
    argv = ["--env=gym_CartPole-v1", "--num_workers=2", "--sample_env_frames_per_worker=500"]
    assert command("run_algorithm")(["--algo=DUMMY_SAMPLER", *argv]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["worker 0", "worker 1", "total"]
    assert printed[2].startswith("total: 1000 frames in ")


@pytest.mark.parametrize(
    ("name", "flag", "words"),
    [
        ("dummy_sampler", "--timeout_seconds=0", "--timeout_seconds=0"),
        ("run_algorithm", "--algo=APO", "--algo=APO is unknown; did you mean APPO? known: APPO"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(refused_by, name, flag, words):
    assert words in refused_by(command(name), flag, "--env=gym_CartPole-v1")


def test_an_env_that_cannot_be_made_is_exit_code_1():
    assert (
        command("dummy_sampler")(["--env=gym_CartPole-v1", '--env_kwargs={"nothing": 1}', "--num_workers=1"])
        == 1
    )


def test_ctrl_c_ends_it_with_the_results_so_far():
    module = ["-m", "sample_factory", "dummy_sampler"]
    command = [sys.executable, *module, "--env=doom_benchmark", "--num_workers=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    parent = psutil.Process(process.pid)
    try:
        wait_until(lambda: len(parent.children(recursive=True)) >= 4)  # 2 workers, 2 engines
        started = parent.children(recursive=True)
        # Each worker is in a session of its own, since the scheduler shares the cores among sessions.
        assert all(os.getsid(worker.pid) == worker.pid for worker in parent.children())
    finally:
        os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0
    assert output.splitlines()[-1].startswith("total: ")
    wait_until(lambda: not alive(started))
