import json
import subprocess
import sys

import pytest

from sample_factory.benchmarking import stages
from sample_factory.benchmarking.benchmark_flags import BENCHMARK
from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER
from sample_factory.benchmarking.stages import (
    STAGES,
    StageFailed,
    Usage,
    _command,
    busy_cores,
    frame_rate,
    mean_gpu_busy,
    measure,
    memory_by_role,
    run_program,
    run_stage,
    usage_of,
)
from sample_factory.config.command import TRAIN
from sample_factory.exchange.messages import LearnerReady
from sample_factory.launch.command_line import parse
from sample_factory.monitoring.figures import Figures, PolicyCounters
from sample_factory.runtime.programs import kill_group

BEGAN = 990.0


def line(time, env_frames=0, policies=(), components=None, learners=()):
    """Figures of a run that was ready at 1000."""
    return Figures(time, time - 1000, env_frames, 0, {}, tuple(policies), components or {}, tuple(learners))


@pytest.fixture(scope="module")
def config():
    flags = ["--num_workers=3", "--num_policies=2", "--policy_workers_per_policy=2", "--env_frameskip=4"]
    flags += ["--batch_size=512", "--num_batches_per_iteration=2", "--rollout=32", "--inline_samplers=0"]
    return parse(BENCHMARK, ["--env=gym_CartPole-v1", *flags])


def test_simulation_counts_from_the_first_figures_after_the_warmup(config):
    figures = [line(1000), line(1005, 500), line(1010, 2000), line(1015, 3000), line(1020, 5000)]
    stage = measure("simulation", config, figures, [], (8.0, 12.0), BEGAN)
    assert stage.fps == pytest.approx(300)
    assert (stage.ready_seconds, stage.first_fps_seconds) == (10, 15)
    assert measure("simulation", config, figures, [], (0.0, 20.0), BEGAN).fps == pytest.approx(250)


@pytest.mark.parametrize("figures", [[], [line(1000)], [line(1000), line(1005)]])
def test_a_stage_without_frames_is_not_measured(config, figures):
    with pytest.raises(StageFailed):
        measure("simulation", config, figures, [], (0.0, 20.0), BEGAN)


def test_frames_are_counted_between_ends_of_iterations():
    ends = {8: 0, 12: 100, 16: 300, 21: 400}

    def counters(time):
        end = max(end for end in ends if end <= time)
        return PolicyCounters(ends[end], 0, float(end))

    figures = [line(time, policies=[counters(time)]) for time in (9, 10, 14, 19, 22)]
    assert frame_rate(figures, 0, (9, 20)) == 50
    assert frame_rate(figures, 0, (9, 15)) == 20  # one end of an iteration: all lines count
    assert frame_rate(figures, 0, (9, 11)) == frame_rate(figures, 0, (16.5, 19.5)) == 0


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


def test_shares_become_milliseconds_of_a_step_a_batch_and_an_iteration(config, figures):
    stage = measure("training", config, figures, [], (20.0, 30.0), BEGAN)
    assert stage.fps == pytest.approx(300)  # 75 steps of agents in a second
    assert (stage.learner, stage.device, stage.rows_per_batch) == ("on cpu in fp32", "cpu", 5)
    assert set(stage.parts["policy_worker"]) == {"wait", "forward"}
    step = {"share": 0.25, "milliseconds": 1000 * 0.25 * 3 / 75}
    assert stage.parts["rollout_worker"]["env_step"] == pytest.approx(step)
    batch = {"share": 0.5, "milliseconds": 1000 * 0.5 * 4 * 5 / 75}
    assert stage.parts["policy_worker"]["forward"] == pytest.approx(batch)
    iteration = {"share": 0.6, "milliseconds": 1000 * 0.6 * 2 * 1024 / 75}
    assert stage.parts["learner"]["train"] == pytest.approx(iteration)
    assert stage.waits == pytest.approx({"rollout_worker": 0.75, "policy_worker": 0.25, "learner": 0.4})
    assert "learner" not in measure("sampling", config, figures, [], (20.0, 30.0), BEGAN).parts
    short = measure("training", config, figures, [], (11.0, 10.0), BEGAN)
    assert short.parts["learner"]["train"]["share"] == pytest.approx(0.9), "not of later figures"


def test_usage_is_the_growth_and_the_memory_is_that_of_the_largest_moment():
    few = {"main": [10.0], "rollout_worker": [20.0], "others": [30.0]}
    many = {"main": [10.0], "rollout_worker": [20.0, 40.0], "others": [1.0, 2.0]}
    usages = [Usage(10, 10, 110, few, 100, 0.25), Usage(20, 25, 130, many, 103, 0.75)]
    assert busy_cores(usages) == {"ours": 1.5, "of_others": 0.5, "stolen": 0.3}
    assert mean_gpu_busy(usages) == 0.5
    assert mean_gpu_busy([usages[0]._replace(gpu_busy=None)]) is None
    assert busy_cores(usages[:1]) is None
    assert memory_by_role(usages) == {
        "main": {"processes": 1, "total_mb": 10.0},
        "rollout_worker": {"processes": 2, "total_mb": 60.0},
        "others": {"processes": 2, "total_mb": 3.0},
    }
    assert memory_by_role([]) == {}


def test_a_program_is_watched_until_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "USAGE_SECONDS", 0.1)
    script = "import sys, time; print('here', flush=True); time.sleep(0.6); sys.exit(3)"
    exit_code, output, usages = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 30)
    assert (exit_code, output) == (3, "here\n") and usages


def test_a_program_that_takes_too_long_is_ended_and_has_no_exit_code(tmp_path):
    assert run_program(["/bin/sleep", "60"], tmp_path / "out.txt", 0.1)[0] is None


def test_a_usage_has_the_memory_of_each_process_by_the_role_in_its_name():
    child = (
        "import time; open('/proc/self/comm', 'w').write('policy_0_1'); print('named', flush=True)\n"
        "time.sleep(60)"
    )
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-c", script], **options)
    try:
        assert process.stdout.readline() == "named\n"
        usage = usage_of(process.pid)
        assert set(usage.memory_mb) == {"main", "policy_worker"}
        assert all(megabytes > 1 for (megabytes,) in usage.memory_mb.values())
        assert 0 <= usage.cpu_seconds < usage.machine_seconds
    finally:
        kill_group(process.pid)
        process.wait()
    assert usage_of(process.pid) is None


@pytest.mark.parametrize("is_typed", [True, False])
def test_no_stage_makes_a_run_of_weights_and_biases(tmp_path, caplog, is_typed):
    """...whether the flags or the file of a run that is to be measured ask for one."""
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"env": "gym_CartPole-v1", "with_wandb": True, "wandb_tags": ["a"]}))
    typed = ["--env=gym_CartPole-v1", "--with_wandb=True", "--wandb_tags", "a"]
    config = parse(BENCHMARK, [*(typed if is_typed else [f"--cfg={file}"]), "--num_envs_per_worker=2"])
    assert ("--with_wandb, --wandb_tags have no effect in benchmark" in caplog.text) == is_typed
    programs = {"dummy_sampler": DUMMY_SAMPLER, "train": TRAIN}
    for stage in STAGES:
        _, name, *argv = _command(config, stage, 5, tmp_path)
        found = parse(programs[name], argv)
        assert found.command.name == "dummy_sampler" or not found.monitoring.with_wandb, stage


def test_flags_that_do_not_fit_together_are_found_by_the_stage_itself(tmp_path):
    config = parse(BENCHMARK, ["--env=gym_CartPole-v1", "--async_rl=False", "--batch_size=96"])
    with pytest.raises(StageFailed, match="exit code 2") as failure:
        run_stage(config, "training", (0.0, 2.0), tmp_path)
    lines = str(failure.value).splitlines()
    assert "--async_rl=False" in lines[-1] and len(lines) <= 21
