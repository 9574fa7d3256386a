import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sample_factory import benchmark
from sample_factory.benchmarking import benchmark as benchmark_module
from sample_factory.benchmarking.benchmark import report, sweep
from sample_factory.benchmarking.benchmark_flags import (
    SWEPT_FLAGS,
    parse_arguments,
    training_flags,
    with_values,
)
from sample_factory.benchmarking.stages import Stage, StageFailed
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from tests.processes import alive

CARTPOLE = ["--env=gym_CartPole-v1", "--num_workers=2", "--num_envs_per_worker=4"]


def test_flags_of_training_are_passed_on():
    typed = [*CARTPOLE, "--encoder_mlp_layers", "16", "8", "--normalize_input=False", "--seed=3"]
    config = parse_arguments(
        ["--seconds=5", *typed, "--sweep", "--compare", "v1=1e3", "--compare=v2 (a=b)=20"]
    )
    assert training_flags(config) == typed
    flags = config.extra["benchmark"]
    assert (flags.seconds, flags.warmup_seconds, flags.sweep) == (5.0, 15.0, True)
    assert flags.others == {"v1": 1000.0, "v2 (a=b)": 20.0}
    assert config.model.encoder_mlp_layers == (16, 8)


def test_a_saved_experiment_of_the_same_name_is_ignored(tmp_path):
    (tmp_path / "default_experiment").mkdir()
    (tmp_path / "default_experiment" / "cfg.json").write_text('{"env": "doom_basic", "batch_size": 64}')
    assert parse_arguments([*CARTPOLE, f"--train_dir={tmp_path}"]).learning.batch_size == 1024


@pytest.mark.parametrize(
    "argv, words",
    [
        ([], "--env"),
        (["--env=dom_basic"], "dom_basic"),
        ([*CARTPOLE, "--secnds=3"], "did you mean --seconds?"),
        ([*CARTPOLE, "--num_worker=3"], "did you mean --num_workers?"),
        ([*CARTPOLE, "--seconds=0"], "--seconds=0.0"),
        ([*CARTPOLE, "--batch_size=33"], "--batch_size=33"),
        ([*CARTPOLE, "--compare=fast"], "NAME=FPS"),
        ([*CARTPOLE, "--compare=a=nan"], "NAME=FPS"),
        ([*CARTPOLE, "--chart=bars.jpeg"], "--chart=bars.jpeg"),
        ([*CARTPOLE, "--json=/no/where/all.json"], "--json=/no/where/all.json"),
        ([*CARTPOLE, "--train_for_seconds=5"], "write --seconds=N"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, argv, words):
    assert benchmark.main(argv) == 2
    printed = capsys.readouterr()
    error = printed.err.strip()
    assert error.startswith("error: ") and words in error and "\n" not in error
    assert not printed.out


def test_a_chart_without_matplotlib_is_an_error_before_anything_runs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert benchmark.main([*CARTPOLE, "--chart=bars.png"]) == 2
    assert "pip install -e '.[plot]'" in capsys.readouterr().err


def test_other_values_replace_those_that_were_typed():
    typed = ["--num_workers", "2", "--env=gym_CartPole-v1", "--repeats=2", "--seed=3", "--batch_size=64"]
    changed = with_values(parse_arguments(typed), {"num_workers": 4, "batch_size": 128})
    assert changed.extra["benchmark"].repeats == 2
    assert training_flags(changed) == [
        "--num_workers=4",
        "--env=gym_CartPole-v1",
        "--seed=3",
        "--batch_size=128",
    ]
    assert changed.sampling.num_workers == 4 and changed.learning.batch_size == 128


def test_a_sweep_measures_with_the_fastest_values_and_prints_the_command(capsys, monkeypatch, tmp_path):
    def fake_run(config, name, seconds, folder):
        measured.append((name, seconds))
        return Stage(1000.0 * config.sampling.num_envs_per_worker)

    measured = []
    monkeypatch.setattr(benchmark_module, "run_stage", fake_run)
    argv = [*CARTPOLE, "--sweep", "--sweep_seconds=4", "--seconds=30", f"--json={tmp_path / 'all.json'}"]
    argv += ["--num_envs_per_worker=2", "--inline_samplers=0", f"--sweep_cfg={tmp_path / 'fast.json'}"]
    assert benchmark.main(argv) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "12 training runs of 25 s each, until about" in printed[0]
    assert printed[-1] == (
        "the fastest: python -m sample_factory.train --env=gym_CartPole-v1 --num_workers=2 "
        "--num_envs_per_worker=16 --inline_samplers=0 --rollout=64 --batch_size=256 "
        "--num_batches_per_iteration=8"
    )
    fast = tmp_path / "fast.json"
    assert any(str(fast) in line for line in printed)
    config = parse_config([f"--cfg={fast}"], resolve_family)
    assert config.env_name == "gym_CartPole-v1" and config.sampling.num_envs_per_worker == 16
    flags = json.loads(fast.read_text())
    assert flags.keys() == {"env", "rollout", "num_batches_per_iteration", *SWEPT_FLAGS}
    assert flags["batch_size"] == 256, "the size that follows the observation, as it was measured"
    assert measured[0] == ("training", (15.0, 4.0))
    assert measured[-3:] == [(name, (15.0, 30.0)) for name in ("simulation", "sampling", "training")]
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["stages"]["training"]["fps"] == 16000
    assert any("batch size 256" in line for line in printed), "the default for what CartPole observes"
    assert found["sweep"][0] == {"flag": "num_envs_per_worker", "value": 4, "fps": 4000.0}


def test_advice_names_the_numbers_that_the_run_has_chosen(capsys, monkeypatch):
    idle = {"ours": 0.1, "of_others": 0.0, "stolen": 0.0}
    waits = {"rollout_worker": 0.0, "policy_worker": 0.9, "learner": 0.9}
    parts = {name: {"wait": {"share": share, "milliseconds": 1.0}} for name, share in waits.items()}
    stage = Stage(1000.0, cores=idle, parts=parts)
    monkeypatch.setattr(benchmark_module, "run_stage", lambda *_: stage)
    assert benchmark.main(["--env=gym_CartPole-v1", "--num_workers=3"]) == 0
    advice = " ".join(capsys.readouterr().out.split()).partition("simulation: try ")[2]
    assert re.match(r"a larger --(num_workers|inline_samplers) \(now \d", advice)


def test_an_env_that_cannot_be_made_is_found_before_the_first_stage(capsys):
    assert benchmark.main([*CARTPOLE, '--env_kwargs={"nothing": 1}']) == 2
    assert "nothing" in capsys.readouterr().err


START = {
    "num_envs_per_worker": 8,
    "inline_samplers": 0,
    "worker_num_splits": 2,
    "policy_workers_per_policy": 1,
    "batch_size": 1024,
    "num_workers": 4,
}


def swept(monkeypatch, speed, cores=4, **changes):
    """Returns the values that a sweep finds, and flag -> values that were tried.

    speed: FPS by the values of START.
    """
    monkeypatch.setattr(benchmark_module, "num_usable_cores", lambda: cores)
    typed = [f"--{name}={value}" for name, value in {**START, **changes}.items()]
    config = parse_arguments(["--env=gym_CartPole-v1", *typed])

    def values_of(config):
        return {name: config.flat()[name] for name in START}

    best, trials = sweep(config, lambda tried: float(speed(values_of(tried))))
    tried = {name: [trial["value"] for trial in trials if trial["flag"] == name] for name in START}
    return values_of(best), tried


def test_a_sweep_climbs_each_flag_for_as_long_as_it_gets_faster(monkeypatch):
    best, tried = swept(
        monkeypatch, lambda values: min(values["num_envs_per_worker"], 32) * values["worker_num_splits"]
    )
    assert tried["num_envs_per_worker"] == [16, 32, 64]
    assert tried["worker_num_splits"] == [4, 8, 16], "none downwards"
    assert best == {**START, "num_envs_per_worker": 32, "worker_num_splits": 16}


def test_a_sweep_tries_smaller_values_where_larger_ones_are_slower(monkeypatch):
    best, tried = swept(monkeypatch, lambda values: 1000 / values["batch_size"])
    assert tried["batch_size"] == [2048, 512, 256, 128]
    assert best == {**START, "batch_size": 128}


def test_a_gain_that_may_be_chance_is_not_kept(monkeypatch):
    best, _ = swept(monkeypatch, lambda values: 1000 + 29 * (values != START))
    assert best == START


def test_a_value_that_contradicts_other_flags_is_not_kept(monkeypatch):
    best, _ = swept(
        monkeypatch, lambda values: 1 / sum(values.values()), num_envs_per_worker=6, batch_size=96
    )
    assert best["num_envs_per_worker"] == 6, "3 envs do not make 2 equal splits"
    assert best["batch_size"] == 96, "48 samples are no whole trajectories of 32"


def test_a_sweep_tries_an_inline_sampler_per_core_and_none(monkeypatch):
    _, tried = swept(monkeypatch, lambda values: 1000 + values["inline_samplers"], num_workers=3)
    assert tried["inline_samplers"] == [3]
    best, tried = swept(monkeypatch, lambda values: 1000 + 100 * values["inline_samplers"])
    assert best["inline_samplers"] == 4 and tried["policy_workers_per_policy"] == []
    _, tried = swept(monkeypatch, lambda values: 1000 - 100 * values["inline_samplers"], inline_samplers=4)
    assert tried["inline_samplers"] == [0]


def test_a_trial_that_does_not_run_is_skipped_and_a_start_that_does_not_run_fails(monkeypatch, capsys):
    def speed(values):
        if values["batch_size"] != 1024:
            raise StageFailed("training", "failed", "out of memory")
        return values["num_workers"]

    best, tried = swept(monkeypatch, speed)
    assert tried["batch_size"] == [2048, 512] and "out of memory" in capsys.readouterr().out
    assert best["num_workers"] == 8
    with pytest.raises(StageFailed):
        swept(monkeypatch, speed, batch_size=512)


def reported(runs, load=0.0, *flags):
    own = ["--inline_samplers=0", "--num_batches_per_iteration=2", "--compare=v1=2000"]
    machine = {"cpu": "a CPU", "cores": 8, "memory_gb": 9.7, "gpus": []}
    lines = report(parse_arguments([*CARTPOLE, *own, *flags]), runs, machine, load)
    assert max(map(len, lines)) <= 80, "readable on a small terminal"
    return [re.split(r"\s{2,}", line.strip()) for line in lines], " ".join(lines)


def test_the_report_is_one_table_with_a_column_for_each_stage():
    rollout = {
        "wait": {"share": 0.2, "milliseconds": 0.5},
        "env_step": {"share": 0.8, "milliseconds": 12.345},
    }
    train = {"train": {"share": 1.0, "milliseconds": 1234.5}, "wait": {"share": 0.0, "milliseconds": 0.0}}
    runs = {
        "simulation": [Stage(10000.0, 1.0, 6.04), Stage(8000.0), Stage(9500.0)],
        "sampling": [Stage(8000.0, parts={"rollout_worker": rollout})] * 3,
        "training": [
            Stage(
                5000.4,
                cores={"ours": 1.94, "of_others": 0.84, "stolen": 0.31},
                memory={"others": {"processes": 4, "total_mb": 200.0}},
                parts={"rollout_worker": rollout, "learner": train},
            )
        ]
        * 3,
    }
    rows, text = reported(runs, 0.0, "--repeats=3")
    for row in (
        ["simulation", "sampling", "training"],
        ["FPS", "9,500", "8,000", "5,000"],
        ["spread of the runs / median", "21%", "0%", "0%"],
        ["share", "100%", "84%", "53%"],
        ["rollout workers (2), ms per agent step"],
        ["env_step", "-", "80%", "12.3", "80%", "12.3"],
        ["learner (1), ms per 2,048 samples"],
        ["train", "-", "-", "100%", "1,234"],
        ["MB of started by them (simulators)", "-", "-", "4 x 50"],
        ["v1: 2,000 FPS, 21%"],
    ):
        assert row in rows
    env_step, wait = (
        next(i for i, row in enumerate(rows) if row[0] == name) for name in ("env_step", "wait")
    )
    assert env_step < wait, "the largest share first"
    note = "note: other programs kept up to 0.8 cores busy, and the host of this virtual machine took up to"
    assert f"{note} 0.3 cores away (steal time): repeat it" in re.sub(" +", " ", text)
    assert "bottleneck: learner" in text


@pytest.mark.parametrize(
    ("training", "load", "cores", "is_noted"),
    [
        (70.0, 0.5, None, False),
        (90.0, 0.5, None, True),  # training cannot be faster than sampling
        (90.0, 0.5, {"ours": 1.0, "of_others": 0.0, "stolen": 0.04}, True),
        (70.0, 1.5, None, True),
        (70.0, 1.5, {"ours": 1.0, "of_others": 0.0, "stolen": 0.04}, False),  # it was idle later
    ],
)
def test_signs_of_other_programs_are_noted(training, load, cores, is_noted):
    speeds = {"simulation": 100.0, "sampling": 80.0, "training": training}
    runs = {name: [Stage(fps, cores=cores)] for name, fps in speeds.items()}
    assert ("note: other programs" in reported(runs, load)[1]) == is_noted


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
    assert error == "interrupted\n"
    assert output.startswith("3 measurements of about 81 s each, until about ")
    assert output.splitlines()[1].startswith("1/3 simulation, random actions, ")
    assert len(started) >= 7
    assert not alive(started)
    assert not list(tmp_path.iterdir())


def test_all_three_stages_of_a_real_run(capsys, monkeypatch, tmp_path):
    temporary = tmp_path / "temporary"
    out = tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    # So small that even a busy machine completes many batches in each second.
    small = ["--num_workers=1", "--num_envs_per_worker=2", "--inline_samplers=1", "--rollout=8"]
    small += ["--batch_size=16", "--encoder_mlp_layers", "16", "--hidden_size=16", "--device=cpu"]
    files = [f"--json={out / 'all.json'}", f"--chart={out / 'bars.png'}", "--compare=v1=1000"]
    argv = ["--env=gym_CartPole-v1", *small, "--seconds=3", "--warmup_seconds=0", *files]
    assert benchmark.main(argv) == 0
    printed = capsys.readouterr().out
    found = json.loads((out / "all.json").read_text())
    stages = found["stages"]
    assert list(stages) == ["simulation", "sampling", "training"]
    assert all(stage["fps"] > 0 for stage in stages.values())
    assert 0 < stages["training"]["ready_seconds"] < 60
    assert "sample_factory.dummy_sampler" in stages["simulation"]["command"]
    assert "--sampler_only=True" in stages["sampling"]["command"]
    assert found["versions"]["torch"] and found["hardware"]["cores"] > 0
    assert found["repeats"] == 1 and len(found["fps_of_repeats"]["training"]) == 1
    assert "learner on cpu in" in printed and "v1: " in printed and "bottleneck: " in printed
    assert (out / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert not list(temporary.iterdir())
