"""Envs that go wrong in real runs: the run heals, or ends with an error that names the env."""

import json
import re

import pytest

from tests.system.running import (
    FOREVER,
    SMALL,
    assert_all_gone,
    checkpoints,
    child,
    descendants,
    run,
    scalars,
    start,
    stop,
    wait_for_line,
    wait_for_progress,
)
from tests.waiting import is_alive

CULPRIT = r"worker 1: env 1 \(faulty_{}\)"


def flags(kind, *more):
    return [f"--env=faulty_{kind}", "--experiment=a", FOREVER, *SMALL, *more]


def test_an_env_that_raises_then_hangs_then_ends_its_process_is_replaced_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT_FILE", str(tmp_path / "faults"))
    kind = "raises_then_hangs_then_exits"
    process = start("faulty_envs.py", tmp_path, *flags(kind, "--heartbeat_reporting_interval=20"))
    # It raises: the env is rebuilt in place.
    line = wait_for_line(process, f"worker 1: env 1 (faulty_{kind}) raised and is rebuilt")
    assert "LookupError: level 7 is missing (faulty_envs.py:" in line
    neighbour = child(descendants(process), "rollout_worker_0")
    # It hangs: its worker is named with its stack, and replaced.
    wait_for_line(process, "rollout_worker_1 was stuck: no sign of life for 20 s")
    wait_for_line(process, "in wait_forever")
    line = wait_for_line(process, "rollout_worker_1 died in step of env 1 and is replaced")
    assert "was stuck" in line
    wait_for_line(process, "worker 1: envs are ready")
    # It ends its process.
    line = wait_for_line(process, "rollout_worker_1 died in step of env 1 and is replaced")
    assert "ended with exit code 3" in line
    wait_for_line(process, "worker 1: envs are ready")
    wait_for_progress(process)
    family = descendants(process)
    assert neighbour == child(family, "rollout_worker_0"), "it was not replaced"
    stop(process)
    assert_all_gone(family)
    written = scalars(tmp_path / "a")
    assert written["health/env_rebuilds"][-1][1] == 1 and written["health/worker_restarts"][-1][1] == 2


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "raises_in_reset",
            r"raised 4 times within 60 s, the last time in (step|reset): LookupError: level 7 is missing",
        ),
        ("wrong_shape", r"observation 'obs' has shape \(3,\), but its observation space says \(2,\)"),
    ],
)
def test_an_env_that_stays_wrong_ends_the_run_with_its_name_and_what_was_wrong(tmp_path, kind, message):
    done = run("faulty_envs.py", tmp_path, *flags(kind))
    assert done.returncode == 1
    assert re.search(rf"ERROR {CULPRIT.format(kind)}:? {message}", done.stdout.splitlines()[-1])
    assert "Traceback" not in done.stdout and "Traceback" in (tmp_path / "a" / "sf_log.txt").read_text()
    assert checkpoints(tmp_path / "a"), "what was learned is saved"


def test_a_start_that_fails_says_why_in_one_line_and_the_users_frames_and_leaves_no_folder(tmp_path):
    done = run("faulty_envs.py", tmp_path / "train_dir", *flags("never_starts"))
    assert done.returncode == 1 and done.stdout.count("ERROR") == 1
    assert done.stdout.count("Traceback (frames of user code)") == 1 and done.stdout.count("  File ") == 1
    assert (
        "faulty_never_starts" in done.stdout
        and "LookupError: level 1 is missing (faulty_envs.py:" in done.stdout
    )
    assert not list(tmp_path.iterdir())


def test_an_env_whose_close_never_returns_trains_and_leaves_no_process(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAULT_FILE", str(pids))
    done = run("faulty_envs.py", tmp_path, *flags("lingers", "--train_for_env_steps=2000"))
    assert done.returncode == 0, done.stdout
    assert re.search(r"\[env '.*'\] WARNING Ended by force, ", done.stdout)
    assert re.search(r"faulty_envs.py., line \d+ in close", done.stdout)
    killed = (
        r"Not stopped within 8 s, and killed: rollout_worker_0 \(busy with close of env 0\), rollout_worker_1"
    )
    assert re.search(killed, done.stdout)
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) == 9, "one of the probe, and of each env"
    assert not any(map(is_alive, left))
    assert checkpoints(tmp_path / "a")


def test_a_worker_that_dies_while_a_finished_run_stops_costs_it_nothing(tmp_path):
    done = run("faulty_envs.py", tmp_path, *flags("dies_at_the_end", "--train_for_env_steps=1000"))
    assert done.returncode == 0, done.stdout
    assert "rollout_worker_1 failed while the run was ending: LookupError: level 7 is missing" in done.stdout
    assert json.loads((tmp_path / "a" / "result.json").read_text())["status"] == "done"
    assert checkpoints(tmp_path / "a")


def test_a_run_ends_at_its_limit_though_a_worker_has_not_started_yet(tmp_path):
    limit = ["--train_for_env_steps=1000", "--batch_size=32"]  # so small that worker 0 fills batches alone
    done = run("faulty_envs.py", tmp_path, *flags("never_made", *limit))
    assert done.returncode == 0, done.stdout
    frames = int(re.search(r"finished: ([\d,]+) env frames", done.stdout)[1].replace(",", ""))
    assert 1000 <= frames < 20_000 and "All processes are ready" not in done.stdout
    assert checkpoints(tmp_path / "a") and (tmp_path / "a" / "cfg.json").exists()


def test_an_env_that_leaks_is_named_before_memory_is_used_up(tmp_path):
    process = start("faulty_envs.py", tmp_path, *flags("leaks"))
    line = wait_for_line(process, "do its envs leak?")
    assert re.search(r"worker 1 has grown from [\d,]+ to [\d,]+ MB", line)
    stop(process)
