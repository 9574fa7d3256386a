"""No run ends by odd statistics of an env, and a run that the main loop ends loses nothing."""

from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import pytest

from tests.system.running import SMALL, newest_state, run, scalars


def train(tmp_path, *flags):
    return run(
        "own_statistics.py", tmp_path, "--env=statistics", "--experiment=a", *SMALL, "--batch_size=64", *flags
    )


class Runs(NamedTuple):
    """A run whose main loop raises, its checkpoint, and the same command once more."""

    folder: Path
    failed: CompletedProcess
    state: dict
    resumed: CompletedProcess


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """In processes; tests/launch/test_serial.py has what a serial run does."""
    train_dir = tmp_path_factory.mktemp("train_dir")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAISES_AT", "500")
        failed = train(train_dir, "--train_for_env_steps=2000")
    state = newest_state(train_dir / "a")
    resumed = train(train_dir, f"--train_for_env_steps={state['env_steps'] + 1500}")
    return Runs(train_dir / "a", failed, state, resumed)


def test_an_exception_of_the_main_loop_is_one_line_after_a_checkpoint_that_resumes(runs):
    failed, resumed = runs.failed, runs.resumed
    assert failed.returncode == 1
    last_line = failed.stdout.splitlines()[-1]
    assert "ERROR main_loop: LookupError: no such curve (own_statistics.py:" in last_line
    assert "Traceback" not in failed.stdout and "in tick" in (runs.folder / "sf_log.txt").read_text()
    assert runs.state["train_step"] > 0
    assert resumed.returncode == 0
    assert f"resumes at {runs.state['train_step']} SGD steps" in resumed.stdout


def test_texts_too_many_statistics_and_metrics_that_raise_are_left_out_and_the_run_continues(runs):
    output = runs.resumed.stdout
    assert runs.resumed.returncode == 0, output
    lines = [line for line in output.splitlines() if "left out of an episode's statistics" in line]
    assert len(lines) >= 1 and all(
        "(statistics): left out" in line and "'map': 'corridor'" in line for line in lines
    )
    assert "the metrics of env 'statistics' are switched off, and training continues" in output
    written = scalars(runs.folder)
    assert written["team/kills"][-1][1] == 3 and "0_aux/avg_a statistic with a long name 400" in written
    assert written["own/episodes"][-1][1] == 20 and "0_aux/avg_map" not in written
    assert written["health/worker_restarts"][-1][1] == 0 and written["health/observer_errors"][-1][1] == 1
