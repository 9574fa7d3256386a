"""No run ends by odd statistics of an env, and a run that the main loop ends loses nothing."""

import pytest

from tests.system.running import SMALL, newest_state, run, scalars


def train(tmp_path, *flags):
    return run(
        "own_statistics.py", tmp_path, "--env=statistics", "--experiment=a", *SMALL, "--batch_size=64", *flags
    )


@pytest.mark.parametrize("serial_mode", [False, True])
def test_texts_too_many_statistics_and_metrics_that_raise_are_left_out_and_the_run_continues(
    tmp_path, serial_mode
):
    done = train(tmp_path, "--train_for_env_steps=2000", f"--serial_mode={serial_mode}")
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if "left out of an episode's statistics" in line]
    assert len(lines) >= 1 and all(
        "(statistics): left out" in line and "'map': 'corridor'" in line for line in lines
    )
    assert "the metrics of env 'statistics' are switched off, and training continues" in done.stdout
    written = scalars(tmp_path / "a")
    assert written["team/kills"][-1][1] == 3 and "0_aux/avg_a statistic with a long name 400" in written
    assert written["own/episodes"][-1][1] == 20 and "0_aux/avg_map" not in written
    assert written["health/worker_restarts"][-1][1] == 0 and written["health/observer_errors"][-1][1] == 1


@pytest.mark.parametrize("serial_mode", [False, True])
def test_an_exception_of_the_main_loop_is_one_line_after_a_checkpoint_that_resumes(
    tmp_path, monkeypatch, serial_mode
):
    flags = ["--train_for_env_steps=2000", f"--serial_mode={serial_mode}"]
    monkeypatch.setenv("RAISES_AT", "500")
    done = train(tmp_path, *flags)
    assert done.returncode == 1
    assert (
        "ERROR main_loop failed: LookupError: no such curve (own_statistics.py:"
        in done.stdout.splitlines()[-1]
    )
    assert "Traceback" not in done.stdout and "in tick" in (tmp_path / "a" / "sf_log.txt").read_text()
    state = newest_state(tmp_path / "a")
    assert state["train_step"] > 0
    monkeypatch.delenv("RAISES_AT")
    done = train(tmp_path, *flags)
    assert done.returncode == 0 and f"resumes at {state['train_step']} SGD steps" in done.stdout
