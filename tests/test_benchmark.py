import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import psutil
import pytest

from sample_factory import benchmark
from sample_factory.benchmark import parse_arguments, with_values
from sample_factory.monitoring import tensorboard_writer
from sample_factory.monitoring.advice import Situation, advice
from sample_factory.monitoring.benchmark_table import memory_table, parts_table, stages_table, trial_text
from sample_factory.monitoring.flag_sweep import DoesNotRun, Trial, fastest, sweep
from sample_factory.monitoring.read_summaries import Moment
from sample_factory.monitoring.run_stage import StageFailed, counts, run_stage
from sample_factory.monitoring.stage_measurement import (
    Counts,
    Memory,
    NotMeasured,
    Part,
    Stage,
    Window,
    busy_cores,
    frame_rate,
    measure_run,
    measure_simulation,
    memory,
)
from sample_factory.runtime import program as program_module
from sample_factory.runtime.program import FinishedProgram, ProcessUsage, Usage, run_program, usage_of

CARTPOLE = ["--env=gym_CartPole-v1", "--num_workers=2", "--num_envs_per_worker=4"]
NEVER_SEEN = re.compile("never seen")


# ---- arguments


def test_flags_of_training_are_passed_on_as_they_were_typed():
    typed = [*CARTPOLE, "--encoder_mlp_layers", "16", "8", "--normalize_input", "--seed=3"]
    plan = parse_arguments(["--seconds=5", *typed, "--sweep", "--compare", "v1=1e3", "--compare=v2 (a=b)=20"])
    assert list(plan.flags) == typed
    assert (plan.own.seconds, plan.own.warmup_seconds, plan.own.sweep) == (5.0, 15.0, True)
    assert plan.others == (("v1", 1000.0), ("v2 (a=b)", 20.0))
    assert plan.config.model.encoder_mlp_layers == (16, 8)


def test_an_experiment_of_the_same_name_is_not_looked_at(tmp_path):
    (tmp_path / "default_experiment").mkdir()
    (tmp_path / "default_experiment" / "cfg.json").write_text('{"env": "doom_basic", "batch_size": 64}')
    assert parse_arguments([*CARTPOLE, f"--train_dir={tmp_path}"]).config.learning.batch_size == 1024


@pytest.mark.parametrize(
    "argv, words",
    [
        ([], "--env is missing"),
        (["--env=dom_basic"], "unknown env 'dom_basic'"),
        ([*CARTPOLE, "--secnds=3"], "unknown flag --secnds=3; did you mean --seconds?"),
        ([*CARTPOLE, "--num_worker=3"], "unknown flag --num_worker=3; did you mean --num_workers?"),
        ([*CARTPOLE, "--seconds=soon"], "argument --seconds: invalid float value"),
        ([*CARTPOLE, "--seconds=0"], "--seconds=0.0: must be at least 2"),
        ([*CARTPOLE, "--batch_size=33"], "--batch_size=33 must be a multiple of --rollout=32"),
        ([*CARTPOLE, "--compare=fast"], "--compare=fast: should be NAME=FPS"),
        ([*CARTPOLE, "--compare==3"], "--compare==3: should be NAME=FPS"),
        ([*CARTPOLE, "--compare=a=nan"], "--compare=a=nan: should be NAME=FPS"),
        ([*CARTPOLE, "--chart=bars.jpeg"], "--chart=bars.jpeg should end in one of .png"),
        ([*CARTPOLE, "--chart=/no/where/bars.png"], "--chart=/no/where/bars.png: there is no such folder"),
        ([*CARTPOLE, "--json=/no/where/all.json"], "--json=/no/where/all.json: there is no such folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, argv, words):
    assert benchmark.main(argv) == 2
    printed = capsys.readouterr()
    error = printed.err.strip()
    assert error.startswith("error: ") and words in error and "\n" not in error
    assert not printed.out


def test_a_chart_without_matplotlib_is_told_before_anything_runs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert benchmark.main([*CARTPOLE, "--chart=bars.png"]) == 2
    assert "pip install -e '.[plot]'" in capsys.readouterr().err


def test_the_help_lists_its_own_flags(capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"--{name}" in printed for name in ("seconds", "json", "chart", "compare", "sweep_seconds"))


def test_other_values_replace_those_that_were_typed():
    plan = parse_arguments(["--num_workers", "2", "--env=gym_CartPole-v1", "--seed=3", "--batch_size=64"])
    changed = with_values(plan, {"num_workers": 4, "batch_size": 128})
    assert list(changed.flags) == [
        "--env=gym_CartPole-v1",
        "--seed=3",
        "--num_workers=4",
        "--batch_size=128",
    ]
    assert counts(changed.config).rollout_workers == 4
    assert counts(changed.config).samples_per_iteration == 128 * 2  # two batches, this env's default


# ---- measurement


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


def usage(seconds, cpu_seconds, *processes):
    return Usage(seconds, cpu_seconds, tuple(ProcessUsage(*process) for process in processes))


def test_usage_counts_within_the_window_only():
    usages = [
        usage(5, 0, ("main", 900.0)),
        usage(10, 10, ("main", 10.0), ("rollout_worker_0", 20.0), ("policy_worker_0_1", 30.0)),
        usage(20, 25, ("main", 10.0), ("rollout_worker_0", 20.0), ("rollout_worker_11", 40.0)),
    ]
    assert busy_cores(usages, Window(8, 30)) == 1.5
    assert busy_cores(usages, Window(15, 30)) is None
    assert memory(usages, Window(8, 30)) == {"main": Memory(1, 10.0), "rollout_worker": Memory(2, 60.0)}
    assert memory(usages[:1], Window(8, 30)) == {"main": Memory(1, 900.0)}
    assert memory([], Window(8, 30)) == {}


# ---- words


def stage(fps, parts=None, **rest):
    values = {"ready_seconds": None, "first_fps_seconds": None, "busy_cores": None, "memory": {}}
    return Stage("command", fps, **{**values, **rest}, parts=parts or {})


def cells(lines):
    """The words of a table's rows."""
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_each_stage_and_each_other_program_has_a_row():
    stages = {
        "simulation": stage(10000.0, ready_seconds=1.0, first_fps_seconds=6.04),
        "sampling": stage(8000.0),
        "training": stage(5000.4, busy_cores=1.94),
    }
    assert cells(stages_table(stages, [("v1", 2000.0)])) == [
        ["FPS", "of simulation", "cores busy", "ready after", "first FPS after"],
        ["simulation, random actions", "10,000", "100 %", "-", "1.0 s", "6.0 s"],
        ["sampling, no learning", "8,000", "80 %", "-", "-", "-"],
        ["training", "5,000", "50 %", "1.9", "-", "-"],
        ["v1", "2,000", "20 %", "-", "-", "-"],
    ]


def test_parts_of_the_work_stand_largest_first():
    rollout = {"wait": Part(0.2, 0.5), "env_step": Part(0.8, 12.345)}
    sampling = stage(1.0, {"rollout_worker": rollout})
    training = stage(1.0, {"rollout_worker": rollout, "learner": {"train": Part(1.0, 1234.5)}})
    rows = cells(parts_table(sampling, training, Counts(4, 2, 1, 1, 2048)))
    assert rows[:4] == [
        ["where the time goes", "sampling", "ms", "training", "ms"],
        ["rollout workers (2), ms per step of an agent"],
        ["env_step", "80 %", "12.3", "80 %", "12.3"],
        ["wait", "20 %", "0.500", "20 %", "0.500"],
    ]
    assert rows[-2:] == [["learner (1), ms per 2,048 samples"], ["train", "-", "-", "100 %", "1,234"]]
    assert parts_table(stage(1.0), stage(1.0), Counts(4, 2, 1, 1, 2048)) == []


def test_memory_is_told_for_each_kind_of_process():
    rows = cells(memory_table(stage(1.0, memory={"main": Memory(1, 50.0), "others": Memory(4, 200.0)})))
    assert rows[1:3] == [
        ["main process", "1", "50", "50"],
        ["started by them (simulators)", "4", "50", "200"],
    ]
    assert memory_table(stage(1.0)) == []


SITUATION = Situation(2, 16, 1, 2048, 1, "auto", (128, 72), on_gpu=False, cores=8, busy_cores=4.0)


@pytest.mark.parametrize(
    "guilty, changes, words, not_words",
    [
        (["learner"], {}, ["learner: try a GPU", "--batch_size (now 2,048)", "128x72"], ["bf16", "cores:"]),
        (["learner"], {"on_gpu": True}, ["--batch_size"], ["a GPU"]),
        (["learner"], {"precision": "fp32", "ppo_epochs": 4}, ["bf16", "--ppo_epochs (now 4)"], []),
        (["learner"], {"resolution": None}, ["--batch_size"], ["--res_w"]),
        (["policy_worker"], {}, ["--num_envs_per_worker (now 16)", "--policy_workers_per_policy"], []),
        (
            ["policy_worker"],
            {"busy_cores": 7.9},
            ["--num_envs_per_worker", "cores: 7.9 of 8"],
            ["--policy_w"],
        ),
        (["rollout_worker"], {}, ["simulation: try a larger --num_workers (now 2)"], ["cores:"]),
        (["rollout_worker"], {"busy_cores": 8.0}, ["more cores"], ["--num_workers"]),
        (["rollout_worker", "learner"], {"busy_cores": None}, ["simulation: ", "learner: "], ["cores:"]),
        ([], {}, ["--sweep"], ["learner:"]),
        (["rollout_worker", "policy_worker", "learner"], {"busy_cores": 8.0}, ["cores: 8.0 of 8"], ["try"]),
    ],
)
def test_advice_names_the_flag_that_helps_here(guilty, changes, words, not_words):
    text = "\n".join(advice(guilty, SITUATION._replace(**changes)))
    assert all(word in text for word in words), text
    assert not [word for word in not_words if word in text], text


# ---- sweep

START = {
    "num_envs_per_worker": 8,
    "worker_num_splits": 2,
    "policy_workers_per_policy": 1,
    "batch_size": 1024,
    "num_workers": 4,
}


def swept(speed, start=START, rollout=32, cores=4):
    told = []
    trials = sweep(start, rollout, cores, lambda values: float(speed(values)), told.append)
    assert told == trials
    return trials


def tried(trials, flag):
    return [trial.values[flag] for trial in trials if trial.changed == flag]


def test_a_sweep_climbs_each_flag_for_as_long_as_it_gets_faster():
    trials = swept(lambda values: min(values["num_envs_per_worker"], 32) * values["worker_num_splits"])
    assert tried(trials, "num_envs_per_worker") == [16, 32, 64]
    assert tried(trials, "worker_num_splits") == [4]  # no more than that; it had got faster upwards
    assert {name: fastest(trials).values[name] for name in ("num_envs_per_worker", "worker_num_splits")} == {
        "num_envs_per_worker": 32,
        "worker_num_splits": 4,
    }


def test_a_sweep_looks_downwards_where_upwards_is_slower():
    trials = swept(lambda values: 1000 / values["batch_size"])
    assert tried(trials, "batch_size") == [2048, 512, 256, 128]
    assert fastest(trials).values == {**START, "batch_size": 128}


def test_a_gain_that_may_be_chance_is_not_kept():
    trials = swept(lambda values: 1000 + 29 * (values != START))
    assert fastest(trials).values == START
    assert [trial.is_kept for trial in trials] == [True] + [False] * (len(trials) - 1)


def test_a_sweep_tries_only_what_fits_together_and_the_machine():
    trials = swept(lambda values: 100, {**START, "num_envs_per_worker": 6, "batch_size": 96}, cores=1)
    assert tried(trials, "num_envs_per_worker") == [12]  # 3 envs do not make 2 equal groups
    assert tried(trials, "worker_num_splits") == [1]
    assert tried(trials, "policy_workers_per_policy") == []
    assert tried(trials, "batch_size") == [192]  # 48 samples are no whole trajectories of 32
    assert tried(trials, "num_workers") == [2]  # 8 are too many for one core


def test_a_trial_that_does_not_run_is_told_and_passed_over():
    def speed(values):
        if values["batch_size"] != 1024:
            raise DoesNotRun("out of memory")
        return values["num_workers"]

    trials = swept(speed)
    failed = [trial for trial in trials if trial.fps is None]
    assert tried(failed, "batch_size") == [2048, 512] and {trial.note for trial in failed} == {
        "out of memory"
    }
    assert fastest(trials).values["num_workers"] == 8
    assert trial_text(failed[0], 4.0) == "--batch_size=2048: does not run (out of memory)"


def test_a_sweep_whose_start_does_not_run_fails():
    def speed(values):
        raise DoesNotRun("out of memory")

    with pytest.raises(DoesNotRun):
        swept(speed)


def test_a_trial_is_told_with_its_gain():
    values = {"num_workers": 2, "batch_size": 64}
    assert trial_text(Trial(values, None, 1000.0, True), None) == "--num_workers=2 --batch_size=64: 1,000 FPS"
    assert (
        trial_text(Trial(values, "batch_size", 1100.0, True), 1000.0)
        == "--batch_size=64: 1,100 FPS (+10 %), kept"
    )


def test_a_sweep_measures_with_what_it_found_and_prints_the_command(capsys, monkeypatch, tmp_path):
    def fake_run(flags, config, name, seconds, folder):
        measured.append((name, seconds))
        return stage(1000.0 * config.sampling.num_envs_per_worker)

    measured = []
    monkeypatch.setattr(benchmark, "run_stage", fake_run)
    argv = [*CARTPOLE, "--sweep", "--sweep_seconds=4", "--seconds=30", f"--json={tmp_path / 'all.json'}"]
    assert benchmark.main(argv) == 0
    printed = capsys.readouterr().out.splitlines()
    best = "--num_envs_per_worker=32 --worker_num_splits=2 --policy_workers_per_policy=1 --batch_size=1024"
    assert printed[-1] == (
        f"the fastest: python -m sample_factory.train --env=gym_CartPole-v1 {best} --num_workers=2"
    )
    assert measured[0] == ("training", (2.0, 4.0))
    assert measured[-3:] == [(name, (15.0, 30.0)) for name in ("simulation", "sampling", "training")]
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["stages"]["training"]["fps"] == 32000
    assert found["sweep"][1]["values"]["num_envs_per_worker"] == 8


# ---- programs


def test_a_program_is_watched_until_its_end(tmp_path):
    script = "import sys, time; time.sleep(0.4); print('here', flush=True); time.sleep(0.4); sys.exit(3)"
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 30, re.compile("here"))
    assert (ended.exit_code, ended.output) == (3, "here\n")
    assert 0.3 < ended.sign_seconds < 5


def test_a_program_that_takes_too_long_is_killed_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "GRACE_SECONDS", ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2)))
    deaf = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]\n"
    sleeper = "import time; time.sleep(60)"
    script = (
        f"{deaf}import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {deaf + sleeper!r}], start_new_session=True)\n"
        "print(child.pid, flush=True); child.wait()"
    )
    ended = run_program([sys.executable, "-c", script], tmp_path / "out.txt", 2, NEVER_SEEN)
    assert (ended.exit_code, ended.sign_seconds) == (None, None)
    assert_ended(int(ended.output))


def test_a_usage_names_the_children(tmp_path):
    sleep = "import time; time.sleep(60)"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {sleep!r}, 'learner_0'])\n"
        f"subprocess.Popen([sys.executable, '-c', {sleep!r}])\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 20
        while len((found := usage_of(process.pid))[0].processes) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert {one.name for one in found[0].processes} == {"main", "learner_0", "others"}
        assert all(one.rss_mb > 1 for one in found[0].processes) and found[0].cpu_seconds > 0
    finally:
        program_module.end(process)
    assert usage_of(process.pid) == []


def assert_ended(pid):
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.05)


def test_a_stage_that_fails_tells_the_end_of_its_output_and_exit_code_1(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    argv = ["--env=gym_NoSuchEnv-v0", "--num_workers=1", "--num_envs_per_worker=2"]
    assert benchmark.main(argv) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert error[0].startswith("error: simulation, random actions: failed with exit code 1; the end")
    assert "NoSuchEnv" in error[-1] and 2 <= len(error) <= 21
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_together_is_found_by_the_stage_itself(tmp_path):
    plan = parse_arguments([*CARTPOLE, "--async_rl=False", "--batch_size=96"])
    with pytest.raises(StageFailed, match="must be a multiple of") as failure:
        run_stage(plan.flags, plan.config, "training", (0.0, 2.0), tmp_path)
    assert "exit code 2" in failure.value.report


def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "sample_factory.benchmark", "--env=doom_benchmark", "--num_workers=2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    parent = psutil.Process(process.pid)
    try:
        deadline = time.monotonic() + 60
        while len(started := parent.children(recursive=True)) < 7 and time.monotonic() < deadline:
            time.sleep(0.1)  # the dummy sampler, two workers, four engines
        os.kill(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "interrupted\n" and output.startswith("simulation, random actions")
    assert len(started) >= 7
    assert not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not list(tmp_path.iterdir())


def test_all_three_stages_of_a_real_run(capsys, monkeypatch, tmp_path):
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    small = ["--rollout=16", "--batch_size=64", "--encoder_mlp_layers", "16", "--hidden_size=16"]
    files = [f"--json={out / 'all.json'}", f"--chart={out / 'bars.png'}", "--compare=v1=1000"]
    argv = [*CARTPOLE, *small, "--device=cpu", "--seconds=3", "--warmup_seconds=0", *files]
    assert benchmark.main(argv) == 0
    printed = capsys.readouterr().out
    found = json.loads((out / "all.json").read_text())
    stages = found["stages"]
    assert list(stages) == ["simulation", "sampling", "training"]
    assert stages["simulation"]["fps"] > stages["sampling"]["fps"] > 0 and stages["training"]["fps"] > 0
    assert 0 < stages["training"]["ready_seconds"] < 60
    assert "sample_factory.dummy_sampler" in stages["simulation"]["command"]
    assert "--sampler_only=True" in stages["sampling"]["command"]
    assert found["versions"]["torch"] and found["hardware"]["cores"] > 0
    assert "learner on cpu in" in printed and "v1 " in printed and "bottleneck: " in printed
    assert (out / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert not list(temporary.iterdir())
