import re

import pytest

from sample_factory.benchmarking.benchmark_table import (
    median_run,
    memory_table,
    parts_table,
    spreads,
    stages_table,
    trial_text,
)
from sample_factory.benchmarking.flag_sweep import Trial
from sample_factory.benchmarking.stage_measurement import Cores, Counts, Memory, Part, Stage


def stage(fps, parts=None, **rest):
    values = {"ready_seconds": None, "first_fps_seconds": None, "cores": None, "memory": {}}
    return Stage("command", fps, **{**values, **rest}, parts=parts or {})


def cells(lines):
    """The words of a table's rows."""
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_each_stage_and_each_other_program_has_a_row():
    stages = {
        "simulation": stage(10000.0, ready_seconds=1.0, first_fps_seconds=6.04),
        "sampling": stage(8000.0),
        "training": stage(5000.4, cores=Cores(1.94, 0.2)),
    }
    lines = stages_table(stages, [("v1", 2000.0)], {})
    assert "env frames per second" in lines[5] and "seconds from the start" in lines[6]
    assert max(map(len, lines)) <= 80
    assert cells(lines[:5]) == [
        ["FPS", "share", "cores", "ready", "first FPS"],
        ["simulation, random actions", "10,000", "100 %", "-", "1.0 s", "6.0 s"],
        ["sampling, no learning", "8,000", "80 %", "-", "-", "-"],
        ["training", "5,000", "50 %", "1.9", "-", "-"],
        ["v1", "2,000", "20 %", "-", "-", "-"],
    ]


def test_repeated_stages_are_reported_by_their_median_and_spread():
    runs = {"simulation": [stage(100.0), stage(80.0), stage(90.0)], "training": [stage(5.0)] * 3}
    assert median_run(runs["simulation"]).fps == 90
    assert median_run([stage(2.0), stage(1.0)]).fps == 1
    assert spreads(runs) == {"simulation": pytest.approx(20 / 90), "training": 0.0}
    assert spreads({"simulation": [stage(1.0)]}) == {}
    stages = {name: median_run(several) for name, several in runs.items()}
    rows = cells(stages_table(stages, [("v1", 20.0)], spreads(runs))[:4])
    assert rows[0][:3] == ["FPS", "spread", "share"]
    assert [row[2] for row in rows[1:]] == ["22 %", "0 %", "-"]


def test_the_load_of_other_programs_is_noted():
    stages = {"simulation": stage(100.0), "training": stage(50.0, cores=Cores(1.0, 0.84))}
    note = stages_table(stages, [], {})[-1]
    assert note.startswith("note: other programs kept up to 0.8 cores busy") and len(note) <= 80


def test_the_cores_are_left_out_where_they_are_not_known():
    lines = stages_table({"simulation": stage(100.0), "training": stage(50.0)}, [("v1", 20.0)], {})
    assert cells(lines[:1]) == [["FPS", "share", "ready", "first FPS"]]
    assert lines[-2:] == [
        "ready, first FPS: seconds from the start of the command",
        "cores busy: known of a run of 15 s or more",
    ]


@pytest.mark.parametrize(
    ("training", "load", "cores", "is_noted"),
    [
        (70.0, 0.5, None, False),
        (90.0, 0.5, None, True),  # training cannot be faster than sampling
        (90.0, 0.5, Cores(1.0, 0.0), True),
        (70.0, 1.5, None, True),
        (70.0, 1.5, Cores(1.0, 0.0), False),  # it was idle later
    ],
)
def test_signs_of_other_programs_are_noted(training, load, cores, is_noted):
    speeds = {"simulation": 100.0, "sampling": 80.0, "training": training}
    stages = {name: stage(fps, cores=cores) for name, fps in speeds.items()}
    note = "note: other programs were using the CPU: repeat it on an idle machine"
    assert (note in stages_table(stages, [], {}, load)) == is_noted


def test_parts_of_the_work_are_listed_largest_first():
    rollout = {"wait": Part(0.2, 0.5), "env_step": Part(0.8, 12.345)}
    sampling = stage(1.0, {"rollout_worker": rollout})
    training = stage(1.0, {"rollout_worker": rollout, "learner": {"train": Part(1.0, 1234.5)}})
    rows = cells(parts_table(sampling, training, Counts(4, 2, 1, 1, 2048)))
    assert rows[:4] == [
        ["where the time goes", "sampling", "ms", "training", "ms"],
        ["rollout workers (2), ms per agent step"],
        ["env_step", "80 %", "12.3", "80 %", "12.3"],
        ["wait", "20 %", "0.500", "20 %", "0.500"],
    ]
    assert rows[-2:] == [["learner (1), ms per 2,048 samples"], ["train", "-", "-", "100 %", "1,234"]]
    assert parts_table(stage(1.0), stage(1.0), Counts(4, 2, 1, 1, 2048)) == []


def test_memory_has_a_row_for_each_role():
    rows = cells(memory_table(stage(1.0, memory={"main": Memory(1, 50.0), "others": Memory(4, 200.0)})))
    assert rows[1:3] == [
        ["main process", "1", "50", "50"],
        ["started by them (simulators)", "4", "50", "200"],
    ]
    assert memory_table(stage(1.0)) == []


def test_a_trial_is_printed_with_its_gain():
    values = {"num_workers": 2, "batch_size": 64}
    assert trial_text(Trial(values, None, 1000.0, True), None) == "--num_workers=2 --batch_size=64: 1,000 FPS"
    assert (
        trial_text(Trial(values, "batch_size", 1100.0, True), 1000.0)
        == "--batch_size=64: 1,100 FPS (+10 %), kept"
    )
    failed = Trial(values, "batch_size", None, False, "out of memory")
    assert trial_text(failed, 1000.0) == "--batch_size=64: does not run (out of memory)"
