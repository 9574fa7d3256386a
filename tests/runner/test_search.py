"""Searches whose runs are short programs, by the command as a user starts it."""

import csv
import json
import os
import re
import signal
from collections import Counter

import pytest

from sample_factory.__main__ import command
from sample_factory.config.flags import ConfigError
from sample_factory.runner.search_description import SearchDescription
from sample_factory.runner.search_trials import open_study
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)  # seconds; Ray takes 5 to start, ten times as many on a busy machine

# Reaches a reward of 100 x, in five steps. Waits in the middle while there is a file `wait_<x>`.
PROGRAM = """
import json, pathlib, sys, time
from sample_factory.monitoring.summaries import TensorboardWriter

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
with open("starts", "a") as file:
    print(flags["experiment"], file=file)
x = float(flags["x"])
if x == 2:
    sys.exit("it has diverged")
folder = pathlib.Path(flags["train_dir"], flags["experiment"])
folder.mkdir(parents=True, exist_ok=True)
writer = TensorboardWriter(folder / ".summary" / "0")
(folder / "new").write_text(json.dumps({"env": flags["env"], "cli_args": flags}))
(folder / "new").rename(folder / "cfg.json")
for frames in range(20, 101, 20):
    writer.write({"0_aux/avg_reward": x * frames, "0_aux/env_frames": frames}, frames)
    writer.flush()
    while frames == 60 and pathlib.Path("wait_" + flags["x"]).exists():
        time.sleep(0.02)
"""
DESCRIPTION = """
import pathlib, optuna
from sample_factory.runner.search_description import SearchDescription

def space(trial):
    if trial.suggest_float("x", 0, 2) == 1.5 or pathlib.Path("broken").exists():
        raise ValueError("1.5 is no x")
    return trial.params

SEARCH = SearchDescription(
    "grid", "python program.py --fixed=1", space, {{"a": (0, 100), "b": (0, 200)}}, {more},
    num_trials={num}, first=[{{"x": x}} for x in {xs}], pruner=optuna.pruners.ThresholdPruner(lower=0.05)
)
"""


@pytest.fixture
def search(grid):
    grid.command = "search"
    (grid.folder / "program.py").write_text(PROGRAM)
    return grid


def describe(search, xs, num=None, more="frames=100"):
    """Describes a search of trials that begin with these values."""
    text = DESCRIPTION.format(xs=xs, num=num or len(xs), more=more)
    (search.folder / "my_grid.py").write_text(text)


def trials(search):
    """Returns the rows of trials.csv."""
    with open(search.folder / "train_dir" / "grid" / "trials.csv") as file:
        return list(csv.DictReader(file))


def starts(search):
    """Returns how often the runs of each trial have been started."""
    path = search.folder / "starts"
    return Counter(name.split("_")[2] for name in path.read_text().split()) if path.exists() else {}


def test_the_best_flags_are_a_recipe_and_bad_trials_are_a_line_each(search):
    describe(search, [0.4, 2, 1.5, 0.8], num=5, more="frames=100, seeds=(1,)")
    ended = search.run("--max_parallel=2")
    assert ended.returncode == 0, ended.stdout
    bad = [line for line in ended.stdout.splitlines() if line.startswith("trial ") and " fail: " in line]
    assert len(bad) == 2
    # Its runs of both envs fail at the same time: the line names the one that was seen first.
    diverged = r"trial 1 fail: \S*_trial_001_see_1_env_[ab]: exit code 1; it has diverged \(x=2\)"
    assert any(re.fullmatch(diverged, line) for line in bad)
    assert "trial 2 fail: space: ValueError: 1.5 is no x (my_grid.py:7) (x=1.5)" in bad
    rows = trials(search)
    assert [row["state"] for row in rows[:4]] == ["complete", "fail", "fail", "complete"]
    scores = [float(row["score"]) for row in rows if row["score"]]
    assert len(rows) == 5 and scores[:2] == pytest.approx([0.3, 0.6])
    assert float(rows[3]["a"]) == float(rows[3]["b"]) == 80
    best = max((row for row in rows if row["score"]), key=lambda row: float(row["score"]))
    recipe = json.loads((search.folder / "train_dir" / "grid" / "best.json").read_text())
    assert "after 100 frames" in recipe.pop("expect")
    assert recipe == {"fixed": "1", "x": best["x"], "train_for_env_steps": "100"}
    pictures = {path.name for path in (search.folder / "train_dir" / "grid").glob("*.png")}
    assert pictures == {
        "optimization_history.png",
        "param_importances.png",
        "parallel_coordinate.png",
    }


def test_after_kill_9_ended_trials_are_not_repeated_and_the_others_continue(search):
    describe(search, [0.4, 0.8], more="seconds=100")
    (search.folder / "wait_0.8").touch()
    process = search.start("--max_parallel=2")
    wait_until(lambda: starts(search).get("001") == 2, seconds=300)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: "running" not in search.states().values())
    (search.folder / "wait_0.8").unlink()
    journal = search.folder / "train_dir" / "grid" / "journal.log"
    with open(journal, "a") as file:
        file.write('{"op_code":')  # as if it had been killed while it wrote
    assert search.run("--max_parallel=2").returncode == 0
    assert [(row["state"], row["x"]) for row in trials(search)] == [("complete", "0.4"), ("complete", "0.8")]
    assert starts(search) == {"000": 4, "001": 6}  # two seeds in two envs
    again = search.run()
    assert again.returncode == 0 and sum(starts(search).values()) == 10


@pytest.mark.parametrize("backend", ["processes", "slurm", "ray"])
def test_a_hopeless_trial_is_stopped_early_on_every_backend(search, cluster, places, backend):
    describe(search, [0.1, 0.9])
    (search.folder / "wait_0.1").touch()  # until it is stopped
    ended = search.run(f"--runner={backend}", "--max_parallel=2")
    assert ended.returncode == 0, ended.stdout
    assert "trial 0 pruned: score 0.015 after 20 frames (x=0.1)" in ended.stdout
    assert [row["state"] for row in trials(search)] == ["pruned", "complete"]
    assert starts(search) == {"000": 2, "001": 4}
    ends = [json.loads(path.read_text())["state"] for path in search.files.glob("*_trial_000_*.state.json")]
    assert ends == ["stopped", "stopped"]


def test_ctrl_c_stops_the_runs_and_a_changed_objective_is_refused(search):
    describe(search, [0.4])
    (search.folder / "wait_0.4").touch()
    process = search.start()
    wait_until(lambda: starts(search).get("000") == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert output.splitlines()[-1] == "stopped; the same command continues"
    describe(search, [0.4], more="frames=200")
    ended = search.run()
    assert ended.returncode == 2 and "give it another search_name" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1


def test_a_second_start_tries_other_flags_for_trials_that_have_failed(search):
    (search.folder / "broken").touch()
    describe(search, [0.4, 0.8], more="frames=100, seeds=(1,)")
    ended = search.run()
    assert ended.returncode == 1 and "no trial is complete" in ended.stdout
    (search.folder / "broken").unlink()
    assert search.run("--max_parallel=1").returncode == 0
    first, second, third, fourth = (row["state"] for row in trials(search))
    assert first == second == "fail" and third == "complete" and fourth in {"complete", "pruned"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("seeds=(1,)", "either frames=... or seconds=..."),
        ("frames=10, seeds=()", "envs and seeds should not be empty"),
        ("frames=10, num_reports=0", "num_reports should be at least 1"),
    ],
)
def test_a_faulty_description_is_one_line(search, monkeypatch, capsys, more, message):
    describe(search, [0.4], more=more)
    monkeypatch.chdir(search.folder)
    assert command("search")(["--run=my_grid.py"]) == 2
    output = capsys.readouterr().err
    assert message in output and len(output.splitlines()) == 1
    assert not (search.folder / "train_dir").exists()


def test_several_values_of_a_flag_are_typed_one_by_one(tmp_path):
    search = SearchDescription("s", "program", dict, {"a": (0, 1)}, frames=10, seeds=(1,))
    [[job]] = search.rounds(0, {"encoder_mlp_layers": (64, 32)}, tmp_path)
    assert job.command[1:4] == ("--encoder_mlp_layers", "64", "32")


def test_a_journal_that_is_a_link_a_pipe_or_damaged_is_one_line_and_changes_no_file(tmp_path):
    description = SearchDescription(
        "s", "python x.py", lambda trial: {}, {"a": (0, 1)}, frames=9, num_trials=1
    )
    journal = tmp_path / "journal.log"
    (tmp_path / "own").write_text("not ended by a line break")
    journal.symlink_to(tmp_path / "own")
    with pytest.raises(ConfigError, match="is a link"):
        open_study(description, tmp_path)
    assert (tmp_path / "own").read_text() == "not ended by a line break"
    journal.unlink()
    os.mkfifo(journal)
    with pytest.raises(ConfigError, match="named pipe"):
        open_study(description, tmp_path)
    for text in ("no JSON\n{}\n", "[]\n", '{"op_code": 99}\n', '{"op_code": 4, "worker_id": "x"}\n'):
        journal.unlink()
        journal.write_text(text)
        with pytest.raises(ConfigError, match="journal") as caught:
            open_study(description, tmp_path)
        assert "\n" not in str(caught.value)
