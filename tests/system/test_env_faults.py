"""Envs that go wrong, in real runs: healed, or named in a clear error."""

import re

import pytest

from tests.system.running import (
    SMALL,
    assert_all_gone,
    child,
    descendants,
    interrupt,
    run,
    scalars,
    start,
    wait_for_frames,
    wait_for_line,
)

pytestmark = pytest.mark.timeout(120)

CULPRIT = r"worker 1: env 1 \(faulty_{}\)"


@pytest.fixture(autouse=True)
def one_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT_FILE", str(tmp_path / "fault"))


def flags(kind, *more):
    return [f"--env=faulty_{kind}", "--experiment=a", "--train_for_env_steps=1000000000", *SMALL, *more]


def test_an_env_that_raises_is_rebuilt_named_and_counted_and_the_run_goes_on(tmp_path):
    process = start("faulty_envs.py", tmp_path, *flags("raises_once"))
    wait_for_line(process, "worker 1: env 1 (faulty_raises_once) raised and is rebuilt")
    wait_for_line(process, "LookupError: level 7 is missing")
    workers = [child(descendants(process), f"rollout_worker_{i}").pid for i in range(2)]
    frames = wait_for_frames(process, 0)
    wait_for_frames(process, frames)
    assert workers == [child(descendants(process), f"rollout_worker_{i}").pid for i in range(2)]
    interrupt(process)
    assert process.wait(timeout=30) == 0
    found = scalars(tmp_path / "a")
    assert found["0_aux/env_rebuilds"][-1][1] == 1 and found["0_aux/worker_restarts"][-1][1] == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raises", r"raised 4 times within 60 s, the last time LookupError: level 7 is missing"),
        ("raises_in_reset", r"raised 4 times within 60 s, the last time LookupError: level 7 is missing"),
        ("wrong_shape", r"observation 'obs' has shape \(3,\), but its observation space says \(2,\)"),
        ("wrong_dtype", r"observation 'obs' has dtype <U1, but its observation space says float32"),
    ],
)
def test_an_env_that_goes_on_being_wrong_ends_the_run_with_its_name_and_what_was_wrong(
    tmp_path, kind, message
):
    done = run("faulty_envs.py", tmp_path, *flags(kind))
    assert done.returncode == 1
    assert re.search(
        rf"rollout_worker_1 failed: .*EnvBroken: {CULPRIT.format(kind)}:? {message}", done.stdout
    )
    assert list((tmp_path / "a" / "checkpoint_p0").glob("checkpoint_*.pth")), "what was learned is saved"


def test_a_stuck_env_is_named_with_its_stack_and_its_worker_is_replaced(tmp_path):
    process = start("faulty_envs.py", tmp_path, *flags("hangs_once", "--heartbeat_reporting_interval=3"))
    wait_for_line(process, "rollout_worker_1 was stuck: no sign of life for 3 s")
    wait_for_line(process, "in wait_for_ever")
    wait_for_line(process, "rollout_worker_1 died while its env 1 was stepped and is replaced: was stuck")
    wait_for_line(process, "worker 1: envs are ready")
    frames = wait_for_frames(process, 0)
    wait_for_frames(process, frames)
    family = descendants(process)
    interrupt(process)
    assert process.wait(timeout=30) == 0
    assert_all_gone(family)


def test_an_env_that_ends_its_process_costs_a_worker_not_the_run(tmp_path):
    process = start("faulty_envs.py", tmp_path, *flags("exits_once"))
    line = wait_for_line(process, "rollout_worker_1 died while its env 1 was stepped and is replaced")
    assert "ended with exit code 3" in line
    wait_for_line(process, "worker 1: envs are ready")
    frames = wait_for_frames(process, 0)
    wait_for_frames(process, frames)
    interrupt(process)
    assert process.wait(timeout=30) == 0
    assert scalars(tmp_path / "a")["0_aux/worker_restarts"][-1][1] == 1


def test_an_env_that_leaks_is_named_before_memory_is_used_up(tmp_path):
    process = start("faulty_envs.py", tmp_path, *flags("leaks"))
    line = wait_for_line(process, "do its envs leak?")
    assert re.search(r"worker 1 has grown from [\d,]+ to [\d,]+ MB", line)
    process.terminate()
    assert process.wait(timeout=30) == 0
