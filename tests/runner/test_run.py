"""The command with its default backend: processes of this machine."""

import os
import signal
import sys

import numpy as np
import psutil
import pytest

from sample_factory import __main__
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.summaries import TensorboardWriter
from sample_factory.runner import run
from sample_factory.runner.backend import GridFlags
from sample_factory.runner.run import check_params, draw_curves
from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription
from sample_factory.runner.run_job import Job
from tests.waiting import alive, is_alive, wait_until

pytestmark = pytest.mark.timeout(300)  # seconds


def test_a_failed_run_stops_no_other_is_named_at_the_end_and_is_resumed_by_a_second_start(grid):
    grid.fail(1, exit_code=3)
    ended = grid.run("--max_parallel=2")
    assert ended.returncode == 1
    assert grid.states() == {"0": "finished", "1": "failed", "2": "finished"}
    last = ended.stdout.splitlines()[-3:]
    assert last[0].startswith("FAILED: 01_a_num_1: exit code 3; ") and last[0].endswith("01_a_num_1.log")
    assert last[1].strip() == "the last words of 1"
    assert [(row["number"], row["state"], row["exit_code"]) for row in grid.results()] == [
        ("0", "finished", "0"),
        ("1", "failed", "3"),
        ("2", "finished", "0"),
    ]
    (grid.folder / "outcome_1").unlink()
    grid.describe([0, 1, 2, 3])
    assert grid.run().returncode == 0
    assert [len(grid.starts(number)) for number in range(4)] == [1, 2, 1, 1]


def test_a_damaged_state_starts_its_run_again_and_a_damaged_order_fails_only_its_run(grid):
    grid.fail(1)
    grid.run()
    damaged = [grid.files / "00_a_num_0.state.json", grid.files / "01_a_num_1.order.json"]
    for path in damaged:
        path.write_text("{")
    grid.describe([0, 1, 2, 3])
    again = grid.run()
    assert again.returncode == 1
    assert [row["state"] for row in grid.results()] == ["finished", "failed", "finished", "finished"]
    assert [len(grid.starts(number)) for number in range(4)] == [2, 1, 1, 1]
    assert f"a run starts again: {damaged[0]}" in again.stdout
    assert f"FAILED: 01_a_num_1: {damaged[1]}" in again.stdout


def test_a_grid_with_a_suffix_leaves_table_and_picture_of_the_grid_without_it(grid):
    grid.describe([0])
    folder = grid.files.parent
    folder.mkdir(parents=True)
    others = [folder / "results.csv", folder / "curves.png"]
    for path in others:
        path.write_text("of another grid")
    ended = grid.run("--experiment_suffix=b")
    assert ended.returncode == 0 and f"written: {folder / 'results_b.csv'}" in ended.stdout
    assert "a_b/00_a_num_0" in (folder / "results_b.csv").read_text()
    assert [path.read_text() for path in others] == ["of another grid"] * 2


def test_ctrl_c_lets_all_runs_stop_and_the_next_start_resumes_them(grid):
    (grid.folder / "wait").touch()
    process = grid.start("--max_parallel=2")
    wait_until(lambda: all(grid.starts(number) for number in (0, 1)))
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert alive(family) == []
    assert grid.states() == {"0": "stopped", "1": "stopped"}
    (grid.folder / "wait").unlink()
    assert grid.run().returncode == 0
    assert [len(grid.starts(number)) for number in range(3)] == [2, 2, 1]


def test_runs_that_have_not_begun_are_neither_in_the_picture_nor_a_fault(tmp_path):
    begun, other = (Job([], tmp_path / name, tmp_path, {}, {"gamma": 0.9}) for name in ("begun", "other"))
    writer = TensorboardWriter(begun.folder / ".summary" / "0")
    writer.write({"0_aux/avg_reward": 1.0}, 10)
    writer.flush()
    (begun.folder / "cfg.json").write_text('{"env": "doom_basic"}')
    *table, written = draw_curves(tmp_path / "curves.png", [begun, other])
    assert len(table) == 2 and written.startswith("written: ")


def test_a_begun_experiment_goes_on_only_with_the_parameters_that_it_was_begun_with(tmp_path, monkeypatch):
    """Names that are numbers stand for other parameters once a grid is extended."""

    def describe(cmd, **values):
        experiment = Experiment("a", cmd, ParamGrid(list(values.items())).generate_params())
        return RunDescription("g", [experiment], customize_experiment_name=False)

    def plan(cmd, **values):
        return describe(cmd, **values).plan(tmp_path)

    values = {"lr": (1e-3, 1e-4), "layers": ([64, 64], ()), "env_kwargs": ({"x": 0.5}, None)}
    values["gamma"] = (np.float32(0.9),)
    begun = plan("train", **values)
    for job in begun:
        job.write_order()
    extended = plan("train", **{**values, "lr": (1e-3, 5e-4, 1e-4)})
    for job in [*begun, *extended]:
        check_params(job)  # nothing has been trained yet
    for job in begun:
        job.folder.mkdir(parents=True)
    for job in [*plan("train --more=1", **values), *extended[:4], *extended[8:]]:
        check_params(job)
    with pytest.raises(ConfigError, match=r"04_a was begun with lr=0.0001, .* now has lr=0.0005; append"):
        check_params(extended[4])
    for other in (plan("train"), plan("train", **values, seed=(1,))):
        with pytest.raises(ConfigError, match="00_a was begun with"):
            check_params(other[0])
    monkeypatch.setattr(run, "load_description", lambda _: describe("train", **values, seed=(1,)))
    with pytest.raises(ConfigError, match="00_a was begun with"):
        run.run_grid(GridFlags(run="my_grid", train_dir=str(tmp_path)))


def test_all_runs_end_when_the_runner_is_killed(grid):
    (grid.folder / "wait").touch()
    process = grid.start("--max_parallel=2")
    wait_until(lambda: all(grid.starts(number) for number in (0, 1)))
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(is_alive, family)))
    assert grid.states() == {"0": "stopped", "1": "stopped"}


def test_a_second_runner_of_the_same_grid_is_refused(grid):
    (grid.folder / "wait").touch()
    process = grid.start()
    wait_until(lambda: bool(grid.starts(0)))
    second = grid.run()
    (grid.folder / "wait").unlink()
    process.communicate(timeout=120)
    assert second.returncode == 2 and "wait for that runner, or stop it" in second.stdout
    assert len(second.stdout.splitlines()) == 1


def test_runs_are_spread_over_the_gpus(grid):
    grid.env["CUDA_VISIBLE_DEVICES"] = "5,7"
    (grid.folder / "wait").touch()
    process = grid.start("--num_gpus=2", "--experiments_per_gpu=1")
    wait_until(lambda: all(grid.starts(number) for number in (0, 1)))
    assert not grid.starts(2)  # both GPUs are taken
    (grid.folder / "wait").unlink()
    process.communicate(timeout=120)
    assert sorted(grid.starts(0) + grid.starts(1)) == ["5", "7"]


def test_a_description_that_raises_shows_the_users_frames_and_starts_nothing(grid):
    (grid.folder / "my_grid.py").write_text("def broken():\n    return 1 / 0\n\n\nbroken()\n")
    ended = grid.run()
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[0] == (
        "error: --run=my_grid: ZeroDivisionError: division by zero (my_grid.py:2)"
    )
    assert "in broken" in ended.stdout and "importlib" not in ended.stdout
    assert "sample_factory/" not in ended.stdout
    assert not (grid.folder / "train_dir").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run=no_grid"], "there is no module no_grid"),
        (["--run=no_grid.py"], "there is no such file"),
        (["--run=program"], "RUN_DESCRIPTION is missing"),
        (["--runner=slrm"], "--runner=slrm is unknown; did you mean slurm?"),
        (["--runner=my_backend:Mine"], "No module named 'my_backend'"),
        (["--max_parallel=0"], "--max_parallel=0: must be at least 1"),
        (["--num_gpus=4", "--experiments_per_gpu=1"], "--num_gpus=4: CUDA_VISIBLE_DEVICES=5 has only 1"),
    ],
)
def test_bad_input_is_one_line(grid, monkeypatch, refused_by, flags, message):
    from sample_factory.runner.run import main

    monkeypatch.chdir(grid.folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr("sys.path", [str(grid.folder), *os.sys.path])
    (grid.folder / "program.py").write_text("")
    assert message in refused_by(main, "--run=my_grid", *flags)
    assert not (grid.folder / "train_dir").exists()


@pytest.mark.parametrize(
    ("command", "package", "extra"), [("run --runner=ray", "ray", "ray"), ("search", "optuna", "search")]
)
def test_without_its_package_a_command_is_one_line_with_the_extra(
    grid, monkeypatch, refused_by, command, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "sample_factory.runner.search_trials", raising=False)
    monkeypatch.chdir(grid.folder)
    assert f"pip install -e '.[{extra}]'" in refused_by(__main__.main, *command.split(), "--run=my_grid.py")
