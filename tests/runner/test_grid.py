"""The lines and the table of a grid, and where its figures are from."""

import io
import json
import math
from pathlib import Path

from sample_factory.monitoring.summaries import TensorboardWriter
from sample_factory.runner.grid import FPS, FRAMES, REWARD, Board, Row
from sample_factory.runner.run_job import Job


def row(name, state):
    result = Row(Job([], Path(name), Path(), {}))
    result.state = state
    return result


def training(name, state):
    result = row(name, state)
    result.figures = {FRAMES: 31_000, FPS: 1510.4, REWARD: 44.0}
    result.target = 50_000
    result.seconds = 25.0
    return result


def test_a_row_has_frames_speed_and_reward_as_far_as_they_are_known():
    rows = [training("00_a_see_1", "running"), row("01_a_see_2", "waiting")]
    board = Board(rows)
    assert [line.split() for line in board.lines(rows)[:-1]] == [
        ["run", "state", "frames", "of", "FPS", "reward", "time"],
        ["00_a_see_1", "running", "31k", "50k", "1,510", "44.0", "0:25"],
        ["01_a_see_2", "waiting"],
    ]
    assert board.counts() == "2 runs: 1 running, 1 waiting"


def test_each_change_of_a_state_is_one_line_and_what_runs_is_a_table_from_time_to_time():
    stream = io.StringIO()
    clock = iter([0.0, 1.0, 2.0, 61.0])  # of the construction, and while the run is running
    run = training("a", "waiting")
    board = Board([run, row("b", "queued")], stream, now=lambda: next(clock))
    board.show()
    run.state = "running"
    for _ in range(3):
        board.show()
    run.state = "failed"
    run.note = "exit code 1"
    for _ in range(2):
        board.show()
    first, *table, last = stream.getvalue().splitlines()
    assert first == "a: running, 31k frames, reward 44.0"
    assert [line.split()[0] for line in table] == ["run", "a", "2"] and "b" not in table[1]
    assert table[-1] == "2 runs: 1 running, 1 queued"
    assert last == "a: failed, exit code 1, 31k frames, reward 44.0"


def test_figures_are_read_from_the_summaries_as_they_grow(tmp_path):
    row = Row(Job([], tmp_path, tmp_path, {}))

    def read():
        row.read()
        return tuple(row.figures.values())

    assert read()[0] == 0 and math.isnan(read()[2])
    (tmp_path / "cfg.json").write_text(json.dumps({"env": "doom_basic", "train_for_env_steps": 5000}))
    writer = TensorboardWriter(tmp_path / ".summary" / "0")
    writer.write({"0_aux/env_frames": 1000, "0_aux/_fps": 300.0}, 1000)
    writer.flush()
    assert read()[:2] == (1000, 300.0)
    assert (row.target, row.env) == (5000, "doom_basic")
    writer.write({"0_aux/env_frames": 2000, "0_aux/avg_reward": 0.5}, 2000)
    writer.flush()
    assert read() == (2000, 300.0, 0.5)
    resumed = TensorboardWriter(tmp_path / ".summary" / "0")
    resumed.write({"0_aux/env_frames": 3000}, 3000)
    resumed.flush()
    assert read()[0] == 3000
