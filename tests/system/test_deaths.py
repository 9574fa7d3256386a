"""Processes of a run are killed or stopped, with real Doom engines where they matter."""

import contextlib
import re
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch

from sample_factory.runtime.supervisor import REPEAT_SECONDS
from tests.forked import Program
from tests.system.running import (
    FOREVER,
    SMALL,
    assert_all_gone,
    assert_nothing_left,
    checkpoints,
    child,
    descendants,
    engine_ids,
    engines,
    interrupt,
    kill,
    kill_idle_engine,
    scalars,
    start,
    stop,
    wait_for_frames,
    wait_for_line,
    wait_for_progress,
)
from tests.waiting import eventually

POLE = ["--env=calm_pole", "--experiment=a", FOREVER, *SMALL]
DOOM = ["--experiment=a", FOREVER, "--num_workers=2", "--inline_samplers=0", "--ppo_epochs=1"]
DOOM += ["--num_envs_per_worker=2", "--rollout=16", "--batch_size=128", "--device=cpu", "--hidden_size=32"]
DOOM += ["--experiment_summaries_interval=1", "--save_every_sec=2", "--status_interval=0.5"]
CALM_DOOM = ["--env=calm_doom_basic", *DOOM]
CALM = "calm_envs.py"
ONLY_AT_THE_END = "--save_every_sec=1000"
HEAL_SECONDS = 60.0


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder for all temporary files of a run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def assert_saved(train_dir: Path) -> None:
    newest = checkpoints(train_dir / "a")[-1]
    assert torch.load(newest, weights_only=True)["model"]


def assert_signal_saves_and_stops(
    run: Program, number: int, train_dir: Path, ids: set[str], *more: psutil.Process
) -> None:
    """Stops a run that has saved nothing yet. ids: of engines that it has had before. more: processes."""
    family = [*descendants(run), *more]
    ids = ids | engine_ids(run)
    assert not checkpoints(train_dir / "a")
    interrupt(run, number)
    time.sleep(0.003)  # GNU `timeout` signals its child, then the child's group
    stop(run, number)
    assert_saved(train_dir)
    assert scalars(train_dir / "a")["0_aux/_fps"], "summaries are flushed"
    assert_nothing_left(family, train_dir / "temporary", ids)


def health(train_dir: Path) -> list[float]:
    """Returns how many workers and how many envs the run has replaced, by its summaries so far."""
    written = scalars(train_dir / "a")
    return [
        written[tag][-1][1] for tag in ("health/worker_restarts", "health/env_rebuilds") if tag in written
    ]


def has_both_engines(run: Program, worker: str) -> bool:
    """Returns False while a worker is being replaced."""
    try:
        return len(engines(child(descendants(run), worker))) == 2
    except (LookupError, psutil.NoSuchProcess):
        return False


def test_killed_engines_and_workers_are_replaced_and_sigterm_saves_and_stops(tmp_path):
    """Last, engines are killed in any call: one can die with a lock that its worker waits for, so that the
    worker is replaced."""
    flags = ["--env=doom_basic", *DOOM, ONLY_AT_THE_END, "--flush_summaries_interval=1"]
    run = start("train", tmp_path, *flags)
    frames = wait_for_frames(run, 0)
    ids = engine_ids(run)
    # An engine: its env is rebuilt in place.
    worker = child(descendants(run), "rollout_worker_0")
    engine = kill_idle_engine(worker, 0)
    wait_for_line(run, "(doom_basic) raised and is rebuilt")
    wait_for_frames(run, wait_for_frames(run, frames))
    assert engine not in engines(worker) and len(engines(worker)) == 2
    # A worker: its engines end with it, its buffers are reclaimed, and a new one starts.
    victim = child(descendants(run), "rollout_worker_1")
    its_engines = engines(victim)
    assert len(its_engines) == 2
    killed = time.monotonic()
    kill(victim)
    assert "ended by signal 9" in wait_for_line(run, "rollout_worker_1 died")
    assert_all_gone(its_engines, timeout=5)
    assert "of rollout_worker_1" in wait_for_line(run, "Reclaimed ")
    wait_for_line(run, "worker 1: envs are ready")
    assert time.monotonic() - killed < HEAL_SECONDS
    wait_for_progress(run)
    successor = child(descendants(run), "rollout_worker_1")
    assert successor.pid != victim.pid and len(engines(successor)) == 2
    assert worker == child(descendants(run), "rollout_worker_0"), "it was not replaced"
    assert eventually(lambda: health(tmp_path) == [1, 1])
    for _ in range(2):
        ids |= engine_ids(run)
        for name in ("rollout_worker_0", "rollout_worker_1"):
            for engine in engines(child(descendants(run), name)):
                with contextlib.suppress(ProcessLookupError):
                    kill(engine)
        killed = time.monotonic()
        frames = wait_for_frames(run, 0)
        while not all(has_both_engines(run, f"rollout_worker_{i}") for i in range(2)):
            frames = wait_for_frames(run, 0)
            assert time.monotonic() - killed < HEAL_SECONDS
        wait_for_frames(run, frames)
    assert_signal_saves_and_stops(run, signal.SIGTERM, tmp_path, ids)


def test_a_worker_killed_again_and_again_while_it_sends_is_replaced_until_it_is_too_often(tmp_path):
    run = start("train", tmp_path, "--env=gym_CartPole-v1", *POLE[1:])
    wait_for_frames(run, 0)
    for _ in range(5):
        kill(child(descendants(run), "rollout_worker_0"))
        wait_for_line(run, "rollout_worker_0 died")
        wait_for_line(run, "worker 0: envs are ready")
    wait_for_progress(run)
    family = descendants(run)
    kill(child(family, "rollout_worker_0"))
    output = run.stdout.read()
    assert run.wait() == 1
    message = "died 6 times in a row, each within 24 s of use; the last time: ended by signal 9"
    assert "rollout_worker_0: " in output.splitlines()[-1] and message in output.splitlines()[-1]
    assert_all_gone(family)
    assert checkpoints(tmp_path / "a")


def test_a_worker_that_dies_while_its_learner_stands_still_is_replaced_and_the_run_continues(tmp_path):
    run = start(CALM, tmp_path, *POLE)
    frames = wait_for_frames(run, 0)
    learner = child(descendants(run), "learner_0")
    kill(learner, signal.SIGSTOP)
    kill(child(descendants(run), "rollout_worker_0"))
    wait_for_line(run, "worker 0: envs are ready")
    for _ in range(4):  # the successor fills buffers whose tickets the learner has not read
        frames = wait_for_frames(run, -1)
    kill(learner, signal.SIGCONT)
    wait_for_frames(run, wait_for_frames(run, frames))
    stop(run)


def test_an_engine_that_hangs_is_ended_with_its_worker_and_keeps_no_signal_from_stopping_the_run(tmp_path):
    # Episodes so long that an engine is stopped in a step, not between two episodes.
    flags = ["--env=calm_doom_my_way_home", *DOOM, ONLY_AT_THE_END, "--heartbeat_reporting_interval=20"]
    run = start(CALM, tmp_path, *flags)
    wait_for_frames(run, 0)
    ids = engine_ids(run)
    first = engines(child(descendants(run), "rollout_worker_0"))[1]
    kill(first, signal.SIGSTOP)
    wait_for_line(run, "rollout_worker_0 was stuck: no sign of life for 20 s")
    wait_for_line(run, "doom_env.py")  # in its stack
    wait_for_line(run, "rollout_worker_0 died in step of env 1 and is replaced")
    wait_for_line(run, "worker 0: envs are ready")
    wait_for_progress(run)
    second = engines(child(descendants(run), "rollout_worker_1"))[0]
    kill(second, signal.SIGSTOP)
    assert_signal_saves_and_stops(run, signal.SIGHUP, tmp_path, ids, first, second)


def test_a_killed_policy_worker_ends_the_run_and_is_named(tmp_path):
    run = start(CALM, tmp_path, *POLE, "--save_every_sec=1")
    wait_for_line(run, "Saved")
    family = descendants(run)
    kill(child(family, "policy_worker_0_0"))
    killed = time.monotonic()
    output = run.stdout.read()
    assert run.wait() == 1 and time.monotonic() - killed < 60, "it does not wait for it as for a learner"
    assert "policy_worker_0_0: ended by signal 9" in output.splitlines()[-1]
    assert_saved(tmp_path)
    assert_all_gone(family)


def test_several_learners_save_once_and_resume_and_a_killed_one_ends_the_run_and_is_named(tmp_path):
    flags = [*POLE, "--learners_per_policy=2"]
    run = start(CALM, tmp_path, *flags, ONLY_AT_THE_END)
    wait_for_frames(run, 0)
    family = descendants(run)
    stop(run)
    assert_saved(tmp_path)
    assert_all_gone(family)
    assert len(checkpoints(tmp_path / "a")) == 1, "the other learner saves nothing"
    run = start(CALM, tmp_path, *flags, "--save_every_sec=1")
    wait_for_line(run, "Policy 0 resumes at")
    wait_for_line(run, "Saved")
    family = descendants(run)
    kill(child(family, "learner_0_1"))
    output = run.stdout.read()
    assert run.wait() == 1
    assert "learner_0_1: ended by signal 9" in output.splitlines()[-1]
    assert_saved(tmp_path)
    assert_all_gone(family)


def test_a_learner_or_policy_worker_that_is_stuck_ends_the_run_and_is_named(tmp_path):
    """Both runs at once: they mostly wait."""
    runs = {}
    for name in ("learner_0", "policy_worker_0_0"):
        flags = [*POLE, "--heartbeat_reporting_interval=20", "--save_every_sec=1"]
        runs[name] = start(CALM, tmp_path / name, *flags)
    families = []
    for name, run in runs.items():
        wait_for_line(run, "Saved")
        families.append(descendants(run))
        kill(child(families[-1], name), signal.SIGSTOP)
    for (name, run), family in zip(runs.items(), families):
        output = run.stdout.read()
        assert run.wait() == 1
        assert f"{name}: was stuck: no sign of life for 20 s" in output.splitlines()[-1]
        assert_saved(tmp_path / name)
        assert_all_gone(family)


def test_a_second_signal_ends_the_run_at_once(tmp_path, temporary):
    run = start(CALM, tmp_path, *CALM_DOOM)
    wait_for_line(run, "Saved")
    worker = child(descendants(run), "rollout_worker_0")
    kill(engines(worker)[0], signal.SIGSTOP)  # the first signal now has something to wait for
    family = descendants(run)
    ids = engine_ids(run)
    interrupt(run)
    wait_for_line(run, "SIGINT received: saving and stopping")
    time.sleep(REPEAT_SECONDS)
    interrupt(run)
    assert run.wait() == 128 + signal.SIGINT
    named = re.search(r"It did not save; the last checkpoint is (\S+) \(", run.stdout.read())[1]
    assert Path(named) in checkpoints(tmp_path / "a")
    assert_saved(tmp_path)
    assert_nothing_left(family, temporary, ids)


def test_when_the_main_process_is_killed_the_learner_saves_and_all_processes_end(tmp_path, temporary):
    run = start(CALM, tmp_path, *CALM_DOOM, ONLY_AT_THE_END)
    wait_for_frames(run, 0)
    family = descendants(run)
    ids = engine_ids(run)
    kill(psutil.Process(run.pid))
    run.wait()
    assert_all_gone(family)
    assert_saved(tmp_path)
    assert_nothing_left(family, temporary, ids)
