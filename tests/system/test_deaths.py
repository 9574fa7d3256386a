"""What happens when a process of a run is killed."""

import os
import signal

import psutil
import pytest

from tests.system.running import SMALL, assert_all_gone, descendants, interrupt, start, wait_for_line

pytestmark = pytest.mark.timeout(120)

FLAGS = ["--env=gym_CartPole-v1", "--experiment=a", "--train_for_env_steps=1000000000", *SMALL]


def child(family, name):
    """The process of a worker; its name stands on its command line."""
    return next(process for process in family if process.cmdline()[-1] == name)


def kill(process: psutil.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)


def wait_for_frames(process, beyond):
    while True:
        line = wait_for_line(process, "env frames ")
        frames = int(line.split("env frames ")[1].split(" ")[0].replace(",", ""))
        if frames > beyond:
            return frames


def test_a_killed_rollout_worker_is_replaced_and_the_run_goes_on(tmp_path):
    run = start("train", tmp_path, *FLAGS)
    frames = wait_for_frames(run, 0)
    victim = child(descendants(run), "rollout_worker_1")
    kill(victim)
    assert "ended by signal 9" in wait_for_line(run, "rollout_worker_1 died and is replaced")
    wait_for_line(run, "worker 1: envs are ready")
    wait_for_frames(run, frames)
    family = descendants(run)
    assert child(family, "rollout_worker_1").pid != victim.pid
    interrupt(run)
    assert run.wait(timeout=30) == 0
    assert_all_gone(family)


@pytest.mark.parametrize("name", ["learner_0", "policy_worker_0_0"])
def test_a_killed_learner_or_policy_worker_ends_the_run_and_is_named(tmp_path, name):
    run = start("train", tmp_path, *FLAGS)
    wait_for_frames(run, 0)
    family = descendants(run)
    kill(child(family, name))
    output = run.stdout.read()
    assert run.wait(timeout=30) == 1
    assert f"{name} failed: ended by signal 9" in output.splitlines()[-1]
    assert_all_gone(family)
    if name != "learner_0":
        assert list((tmp_path / "a" / "checkpoint_p0").glob("checkpoint_*.pth")), "the learner saved"


def test_when_the_main_process_is_killed_the_learner_saves_and_all_leave(tmp_path):
    run = start("train", tmp_path, *FLAGS)
    wait_for_frames(run, 0)
    family = descendants(run)
    kill(psutil.Process(run.pid))
    run.wait(timeout=10)
    assert_all_gone(family, timeout=20)
    assert list((tmp_path / "a" / "checkpoint_p0").glob("checkpoint_*.pth"))
