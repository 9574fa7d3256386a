"""What happens when processes of a run are killed or stopped, with real Doom engines where they matter."""

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import torch

from tests.system.running import (
    SMALL,
    assert_all_gone,
    child,
    descendants,
    engines,
    interrupt,
    kill,
    kill_idle_engine,
    scalars,
    start,
    wait_for_frames,
    wait_for_line,
)

pytestmark = pytest.mark.timeout(120)

CARTPOLE = ["--env=gym_CartPole-v1", "--experiment=a", "--train_for_env_steps=1000000000", *SMALL]
DOOM = ["--env=doom_basic", "--experiment=a", "--train_for_env_steps=1000000000", "--num_workers=2"]
DOOM += ["--num_envs_per_worker=2", "--rollout=16", "--batch_size=128", "--device=cpu", "--hidden_size=32"]
DOOM += ["--experiment_summaries_interval=1", "--save_every_sec=2", "--status_interval=0.5"]
# So long that an engine that is stopped soon is stopped in a step, and not between two episodes.
LONG_EPISODES = ["--env=doom_my_way_home", *DOOM[1:]]


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where all temporary files of a run go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def engine_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("ViZDoom*")}


def checkpoints(train_dir: Path) -> list[Path]:
    return sorted((train_dir / "a" / "checkpoint_p0").glob("checkpoint_*.pth"))


def assert_loads(path: Path) -> None:
    assert torch.load(path, weights_only=True)["model"]


def assert_nothing_left(family: list[psutil.Process], temporary: Path, memory_before: set[str]) -> None:
    assert_all_gone(family)
    deadline = time.monotonic() + 10  # what sweeps up after killed engines outlives them for a moment
    while time.monotonic() < deadline and (list(temporary.iterdir()) or engine_memory() - memory_before):
        time.sleep(0.05)
    assert not list(temporary.iterdir()) and not engine_memory() - memory_before


def test_a_killed_rollout_worker_takes_its_engines_along_and_is_replaced(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    frames = wait_for_frames(run, 0)
    victim = child(descendants(run), "rollout_worker_1")
    its_engines = engines(victim)
    assert len(its_engines) == 2
    killed = time.monotonic()
    kill(victim)
    assert "ended by signal 9" in wait_for_line(run, "rollout_worker_1 died")
    assert_all_gone(its_engines, timeout=5)
    assert "of rollout_worker_1" in wait_for_line(run, "Reclaimed ")
    wait_for_line(run, "worker 1: envs are ready")
    assert time.monotonic() - killed < 30
    frames = wait_for_frames(run, frames)
    wait_for_frames(run, frames)
    family = descendants(run)
    successor = child(family, "rollout_worker_1")
    assert successor.pid != victim.pid and len(engines(successor)) == 2
    interrupt(run)
    assert run.wait(timeout=10) == 0
    assert scalars(tmp_path / "a")["0_aux/worker_restarts"][-1][1] == 1
    assert_nothing_left(family, temporary, memory)


def test_a_worker_killed_again_and_again_while_it_sends_heals_until_it_is_too_often(tmp_path):
    run = start("train", tmp_path, *CARTPOLE)
    wait_for_frames(run, 0)
    for _ in range(5):
        kill(child(descendants(run), "rollout_worker_0"))
        wait_for_line(run, "rollout_worker_0 died")
        wait_for_line(run, "worker 0: envs are ready")
    wait_for_frames(run, wait_for_frames(run, 0))
    family = descendants(run)
    kill(child(family, "rollout_worker_0"))
    output = run.stdout.read()
    assert run.wait(timeout=15) == 1
    message = "died 6 times in a row, each within 24 s of use; the last time: ended by signal 9"
    assert "rollout_worker_0 failed: " in output.splitlines()[-1] and message in output.splitlines()[-1]
    assert_all_gone(family)
    assert checkpoints(tmp_path)


def test_a_killed_engine_costs_an_episode_and_no_more(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    wait_for_frames(run, 0)
    worker = child(descendants(run), "rollout_worker_0")
    victim = kill_idle_engine(worker, 0)
    wait_for_line(run, "(doom_basic) raised and is rebuilt")
    wait_for_frames(run, wait_for_frames(run, 0))
    assert victim not in engines(worker) and len(engines(worker)) == 2
    family = descendants(run)
    interrupt(run)
    assert run.wait(timeout=10) == 0
    assert scalars(tmp_path / "a")["0_aux/env_rebuilds"][-1][1] == 1
    assert_nothing_left(family, temporary, memory)


def has_both_engines(run: subprocess.Popen, worker: str) -> bool:
    """Not while the worker is being replaced, which it is once it has waited for a killed engine too long."""
    try:
        return len(engines(child(descendants(run), worker))) == 2
    except (LookupError, psutil.NoSuchProcess):
        return False


def test_engines_killed_in_any_call_are_replaced_and_the_run_goes_on(tmp_path, temporary):
    """Also where the worker waits without end, since an engine has died with a lock that both need."""
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    wait_for_frames(run, 0)
    for _ in range(3):
        for name in ("rollout_worker_0", "rollout_worker_1"):
            for engine in engines(child(descendants(run), name)):
                kill(engine)
        died = time.monotonic()
        frames = wait_for_frames(run, 0)
        while not all(has_both_engines(run, f"rollout_worker_{i}") for i in range(2)):
            frames = wait_for_frames(run, 0)
            assert time.monotonic() - died < 30
        wait_for_frames(run, frames)
    family = descendants(run)
    interrupt(run)
    assert run.wait(timeout=10) == 0
    assert_nothing_left(family, temporary, memory)


def test_an_engine_that_hangs_is_found_and_ended_with_its_worker(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *LONG_EPISODES, "--heartbeat_reporting_interval=4")
    wait_for_frames(run, 0)
    victim = engines(child(descendants(run), "rollout_worker_0"))[1]
    kill(victim, signal.SIGSTOP)
    wait_for_line(run, "rollout_worker_0 was stuck: no sign of life for 4 s")
    wait_for_line(run, "in simulate")
    wait_for_line(run, "rollout_worker_0 died while its env 1 was stepped and is replaced")
    wait_for_line(run, "worker 0: envs are ready")
    wait_for_frames(run, wait_for_frames(run, 0))
    family = [*descendants(run), victim]
    interrupt(run)
    assert run.wait(timeout=10) == 0
    assert_nothing_left(family, temporary, memory)


@pytest.mark.parametrize("name", ["learner_0", "policy_worker_0_0"])
def test_a_killed_learner_or_policy_worker_ends_the_run_and_is_named(tmp_path, temporary, name):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    wait_for_line(run, "Saved")
    family = descendants(run)
    kill(child(family, name))
    killed = time.monotonic()
    output = run.stdout.read()
    assert run.wait(timeout=15) == 1 and time.monotonic() - killed < 15
    assert f"{name} failed: ended by signal 9" in output.splitlines()[-1]
    assert_loads(checkpoints(tmp_path)[-1])
    assert_nothing_left(family, temporary, memory)


@pytest.mark.parametrize("name", ["learner_0", "policy_worker_0_0"])
def test_a_learner_or_policy_worker_that_is_stuck_ends_the_run_and_is_named(tmp_path, name):
    run = start("train", tmp_path, *CARTPOLE, "--heartbeat_reporting_interval=3", "--save_every_sec=1")
    wait_for_line(run, "Saved")
    family = descendants(run)
    kill(child(family, name), signal.SIGSTOP)
    output = run.stdout.read()
    assert run.wait(timeout=15) == 1
    assert f"{name} failed: was stuck: no sign of life for 3 s" in output.splitlines()[-1]
    assert_loads(checkpoints(tmp_path)[-1])
    assert_all_gone(family)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_stops_the_run(tmp_path, temporary, number):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM, "--save_every_sec=1000")
    wait_for_frames(run, 0)
    family = descendants(run)
    assert not checkpoints(tmp_path)
    interrupt(run, number)
    assert run.wait(timeout=10) == 0
    assert_loads(checkpoints(tmp_path)[-1])
    assert scalars(tmp_path / "a")["0_aux/_fps"], "summaries are flushed"
    assert_nothing_left(family, temporary, memory)


def test_a_second_signal_ends_the_run_at_once(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    wait_for_line(run, "Saved")
    worker = child(descendants(run), "rollout_worker_0")
    kill(engines(worker)[0], signal.SIGSTOP)  # the first signal now has something to wait for
    family = descendants(run)
    interrupt(run)
    wait_for_line(run, "SIGINT received: saving and stopping")  # two at once would count as one
    interrupt(run)
    assert run.wait(timeout=2) == 128 + signal.SIGINT
    assert_loads(checkpoints(tmp_path)[-1])
    assert_nothing_left(family, temporary, memory)


def test_a_worker_that_hangs_does_not_keep_a_signal_from_stopping_the_run(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM)
    wait_for_frames(run, 0)
    kill(engines(child(descendants(run), "rollout_worker_0"))[0], signal.SIGSTOP)
    family = descendants(run)
    interrupt(run)
    run.stdout.read()
    assert run.wait(timeout=15) == 0
    assert_loads(checkpoints(tmp_path)[-1])
    assert_nothing_left(family, temporary, memory)


def test_when_the_main_process_is_killed_the_learner_saves_and_all_leave(tmp_path, temporary):
    memory = engine_memory()
    run = start("train", tmp_path, *DOOM, "--save_every_sec=1000")
    wait_for_frames(run, 0)
    family = descendants(run)
    kill(psutil.Process(run.pid))
    run.wait(timeout=10)
    assert_all_gone(family, timeout=15)
    assert_loads(checkpoints(tmp_path)[-1])
    assert_nothing_left(family, temporary, memory)
