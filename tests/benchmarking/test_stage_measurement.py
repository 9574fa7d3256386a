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
from sample_factory.exchange.messages import LearnerReady
from sample_factory.monitoring.figures import Figures, PolicyCounters

PROGRAM = FinishedProgram(0, 990.0, "", ())


def line(time, env_frames=0, policies=(), components=None, learners=()):
    """Figures of a run that was ready at 1000."""
    return Figures(
        time, time - 1000, env_frames, 0, {}, tuple(policies), components or {}, tuple(learners), ()
    )


def test_simulation_counts_from_the_first_figures_after_the_warmup():
    figures = [line(1000), line(1005, 500), line(1010, 2000), line(1015, 3000), line(1020, 5000)]
    stage = measure_simulation("command", PROGRAM, figures, warmup_seconds=8)
    assert stage.fps == pytest.approx(300)
    assert (stage.ready_seconds, stage.first_fps_seconds) == (10, 15)
    assert measure_simulation("command", PROGRAM, figures, warmup_seconds=0).fps == pytest.approx(250)


@pytest.mark.parametrize("figures", [[], [line(1000)]])
def test_a_simulation_without_frames_is_not_measured(figures):
    with pytest.raises(NotMeasured):
        measure_simulation("command", PROGRAM, figures, 0)


def test_frames_are_counted_between_ends_of_iterations():
    ends = {8: 0, 12: 100, 16: 300, 21: 400}

    def counters(time):
        end = max(end for end in ends if end <= time)
        return PolicyCounters(ends[end], 0, float(end))

    figures = [line(time, policies=[counters(time)]) for time in (9, 10, 14, 19, 22)]
    assert frame_rate(figures, 0, Window(9, 20)) == 50
    assert frame_rate(figures, 0, Window(9, 15)) == 20  # one end of an iteration: all lines count
    with pytest.raises(NotMeasured, match="--seconds"):
        frame_rate(figures, 0, Window(9, 11))
    with pytest.raises(NotMeasured, match="--seconds"):
        frame_rate(figures, 0, Window(16.5, 19.5))


@pytest.fixture
def figures():
    """Two policies; 200 frames/s and 100 in each of the seconds 1000 to 1059; shares that change at 1040."""
    lines = []
    for second in range(60):
        time = 1000.0 + second
        busy = 0.9 if second < 40 else 0.6
        components = {
            "learner": {"wait": 1 - busy, "train": busy},
            "policy_worker": {"forward": 0.5, "wait": 0.25, "avg_batch_size": 5.0, "memory_mb": 99.0},
            "rollout_worker": {"wait": 0.75, "env_step": 0.25},
        }
        policies = [PolicyCounters(200 * second, 0, time), PolicyCounters(100 * second, 0, time)]
        learners = [LearnerReady(policy_id, "cpu", "fp32", 9) for policy_id in range(2)]
        lines.append(line(time, 300 * second, policies, components, learners))
    return lines


def test_shares_become_milliseconds_of_a_step_a_batch_and_an_iteration(figures):
    amounts = Counts(frameskip=4, rollout_workers=3, policy_workers=4, learners=2, samples_per_iteration=1000)
    stage = measure_run("command", PROGRAM, figures, (20.0, 30.0), amounts)
    assert stage.fps == pytest.approx(300)  # 75 steps of agents in a second
    assert (stage.ready_seconds, stage.first_fps_seconds) == (10, 11)
    assert (stage.learner, stage.device) == ("on cpu in fp32", "cpu")
    assert stage.rows_per_batch == 5
    assert set(stage.parts["policy_worker"]) == {"wait", "forward"}
    share, milliseconds = stage.parts["rollout_worker"]["env_step"]
    assert (share, milliseconds) == pytest.approx((0.25, 1000 * 0.25 * 3 / 75))
    assert stage.parts["policy_worker"]["forward"].milliseconds == pytest.approx(1000 * 0.5 * 4 * 5 / 75)
    # Only of figures that do not include the warm-up, from second 1040 on.
    share, milliseconds = stage.parts["learner"]["train"]
    assert (share, milliseconds) == pytest.approx((0.6, 1000 * 0.6 * 2 * 1000 / 75))
    assert stage.waits == pytest.approx({"rollout_worker": 0.75, "policy_worker": 0.25, "learner": 0.4})


def test_in_a_short_run_the_last_figures_give_the_shares(figures):
    stage = measure_run("command", PROGRAM, figures, (11.0, 10.0), Counts(1, 1, 1, 2, 1))
    assert stage.parts["learner"]["train"].share == pytest.approx(0.9)


def test_a_run_without_figures_is_not_measured():
    with pytest.raises(NotMeasured):
        measure_run("command", PROGRAM, [], (1.0, 2.0), Counts(1, 1, 1, 1, 1))


def usage(seconds, cpu_seconds, machine_seconds, *processes):
    return Usage(
        seconds, cpu_seconds, machine_seconds, tuple(ProcessUsage(*process) for process in processes)
    )


def test_usage_counts_within_the_window_only():
    roles = {1: "main", 2: "rollout_worker", 3: "rollout_worker"}
    usages = [
        usage(5, 0, 100, (1, 900.0)),
        usage(10, 10, 110, (1, 10.0), (2, 20.0), (4, 30.0)),
        usage(20, 25, 130, (1, 10.0), (2, 20.0), (3, 40.0), (5, 1.0), (6, 2.0)),
    ]
    assert busy_cores(usages, Window(8, 30)) == Cores(ours=1.5, of_others=0.5)
    assert busy_cores(usages, Window(15, 30)) is None
    assert memory(usages, Window(8, 30), roles) == {
        "main": Memory(1, 10.0),
        "rollout_worker": Memory(2, 60.0),
        "others": Memory(2, 3.0),
    }
    assert memory(usages[:1], Window(8, 30), roles) == {"main": Memory(1, 900.0)}
    assert memory([], Window(8, 30), roles) == {}
