import types

import pytest

from sample_factory.benchmarking.program import FinishedProgram, ProcessUsage, Usage
from sample_factory.benchmarking.stage_measurement import (
    Cores,
    Counts,
    Memory,
    NotMeasured,
    Window,
    busy_cores,
    frame_rate,
    measure_run,
    measure_simulation,
    memory,
)
from sample_factory.monitoring import tensorboard_writer
from sample_factory.plotting.read_summaries import Moment


def finished(output, sign_seconds=None, usages=()):
    return FinishedProgram(0, 1000.0, output, sign_seconds, usages)


def test_simulation_counts_from_the_first_line_after_the_warmup():
    output = "5 s: 1 FPS, 500 frames\n10 s: 1 FPS, 2000 frames\n15 s: 9 FPS, 3000 frames\n"
    output += "worker 0: 5000 frames, 250 FPS\ntotal: 5000 frames in 20.0 s, 250 FPS\n"
    stage = measure_simulation("command", finished(output, 7.5), warmup_seconds=8)
    assert stage.fps == pytest.approx(300)
    assert (stage.ready_seconds, stage.first_fps_seconds) == (2.5, 7.5)
    assert measure_simulation("command", finished(output, 7.5), warmup_seconds=0).fps == pytest.approx(250)


def test_a_simulation_that_says_nothing_is_not_measured():
    with pytest.raises(NotMeasured):
        measure_simulation("command", finished("worker 0: 3 frames"), 0)


def test_frames_are_counted_between_ends_of_iterations():
    def moment(seconds, step, tag):
        return Moment(seconds, step, {tag: 0.0})

    moments = [
        moment(8, 0, "train/loss"),
        moment(10, 0, "0_aux/_fps"),
        moment(12, 100, "train/loss"),
        moment(14, 100, "0_aux/_fps"),
        moment(16, 300, "train/loss"),
        moment(19, 300, "0_aux/_fps"),
        moment(21, 400, "train/loss"),
    ]
    assert frame_rate(moments, Window(9, 20)) == 50
    assert frame_rate(moments, Window(9, 15)) == 25  # one end of an iteration: all moments count
    with pytest.raises(NotMeasured, match="--seconds"):
        frame_rate(moments, Window(9, 11))
    with pytest.raises(NotMeasured, match="--seconds"):
        frame_rate(moments, Window(15.5, 19.5))


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """Two policies; 200 frames/s and 100 in each of the seconds 1000 to 1059; shares that change at 1040."""
    clock = types.SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(tensorboard_writer, "time", types.SimpleNamespace(time=lambda: clock.seconds))
    for policy, fps in ((0, 200), (1, 100)):
        writer = tensorboard_writer.TensorboardWriter(tmp_path / ".summary" / str(policy))
        for second in range(60):
            clock.seconds = 1000.0 + second
            busy = 0.9 if second < 40 else 0.6
            scalars = {"stats/learner_wait": 1 - busy, "stats/learner_train": busy}
            scalars |= {"stats/step_policy": 0.5, "stats/wait_policy": 0.25}
            scalars |= {"stats/policy_worker_avg_batch_size": 5.0, "stats/memory_policy_worker": 99.0}
            if policy == 0:
                scalars |= {"stats/wait_actor": 0.75, "stats/step_actor": 0.25}
                scalars["0_aux/master_process_memory_mb"] = 50.0
            writer.write(scalars, second * fps)
        writer.flush()
    return tmp_path


def test_shares_become_milliseconds_of_a_step_a_batch_and_an_iteration(run_folder):
    program = finished("policy 0 learns on cpu in fp32, 9 parameters\n", 12.5)
    amounts = Counts(frameskip=4, rollout_workers=3, policy_workers=4, learners=2, samples_per_iteration=1000)
    stage = measure_run("command", program._replace(began=990.0), run_folder, (21.0, 30.0), amounts)
    assert stage.fps == pytest.approx(300)  # 75 steps of agents in a second
    assert (stage.ready_seconds, stage.first_fps_seconds) == (9.0, 12.5)
    assert stage.learner == "on cpu in fp32"
    assert stage.rows_per_batch == 5
    assert set(stage.parts["policy_worker"]) == {"wait", "forward"}
    share, milliseconds = stage.parts["rollout_worker"]["env_step"]
    assert (share, milliseconds) == pytest.approx((0.25, 1000 * 0.25 * 3 / 75))
    assert stage.parts["policy_worker"]["forward"].milliseconds == pytest.approx(1000 * 0.5 * 4 * 5 / 75)
    # Only of summaries that do not reach back into the warm-up, from second 1040 on.
    share, milliseconds = stage.parts["learner"]["train"]
    assert (share, milliseconds) == pytest.approx((0.6, 1000 * 0.6 * 2 * 1000 / 75))
    assert stage.waits == pytest.approx({"rollout_worker": 0.75, "policy_worker": 0.25, "learner": 0.4})


def test_of_a_short_run_the_last_summary_tells_the_shares(run_folder):
    stage = measure_run("command", finished(""), run_folder, (11.0, 10.0), Counts(1, 1, 1, 2, 1))
    assert stage.parts["learner"]["train"].share == pytest.approx(0.9)


def test_a_run_without_summaries_is_not_measured(tmp_path):
    with pytest.raises(NotMeasured):
        measure_run("command", finished(""), tmp_path, (1.0, 2.0), Counts(1, 1, 1, 1, 1))


def usage(seconds, cpu_seconds, machine_seconds, *processes):
    return Usage(
        seconds, cpu_seconds, machine_seconds, tuple(ProcessUsage(*process) for process in processes)
    )


def test_usage_counts_within_the_window_only():
    usages = [
        usage(5, 0, 100, ("main", 900.0)),
        usage(10, 10, 110, ("main", 10.0), ("rollout_worker_0", 20.0), ("policy_worker_0_1", 30.0)),
        usage(20, 25, 130, ("main", 10.0), ("rollout_worker_0", 20.0), ("rollout_worker_11", 40.0)),
    ]
    assert busy_cores(usages, Window(8, 30)) == Cores(ours=1.5, of_others=0.5)
    assert busy_cores(usages, Window(15, 30)) is None
    assert memory(usages, Window(8, 30)) == {"main": Memory(1, 10.0), "rollout_worker": Memory(2, 60.0)}
    assert memory(usages[:1], Window(8, 30)) == {"main": Memory(1, 900.0)}
    assert memory([], Window(8, 30)) == {}
