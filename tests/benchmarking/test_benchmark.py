import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from sample_factory.__main__ import command
from sample_factory.benchmarking import benchmark as benchmark_module
from sample_factory.benchmarking.benchmark import report
from sample_factory.benchmarking.benchmark_flags import BENCHMARK, training_flags
from sample_factory.benchmarking.stages import Stage
from sample_factory.launch.command_line import parse
from tests.waiting import alive, wait_until

CARTPOLE = ["--env=gym_CartPole-v1", "--num_workers=2", "--num_envs_per_worker=4"]


def test_flags_of_training_are_passed_on():
    typed = [*CARTPOLE, "--encoder_mlp_layers", "16", "8", "--normalize_input=False", "--seed=3"]
    config = parse(BENCHMARK, ["--seconds=5", *typed])
    assert training_flags(config) == typed
    flags = config.extra["benchmark"]
    assert (flags.seconds, flags.warmup_seconds) == (5.0, 15.0)
    assert config.model.encoder_mlp_layers == (16, 8)


def test_a_saved_experiment_of_the_same_name_is_ignored(tmp_path):
    (tmp_path / "default_experiment").mkdir()
    (tmp_path / "default_experiment" / "cfg.json").write_text('{"env": "doom_basic", "batch_size": 64}')
    assert parse(BENCHMARK, [*CARTPOLE, f"--train_dir={tmp_path}"]).learning.batch_size == 1024


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--seconds=0", "--seconds=0.0"),
        ("--batch_size=33", "--batch_size=33"),
        ("--json=/no/where/all.json", "--json=/no/where/all.json"),
        ("--train_for_seconds=5", "write --seconds=N"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(refused_by, flag, words):
    assert words in refused_by(command("benchmark"), *CARTPOLE, flag)


def test_advice_names_the_numbers_that_the_run_has_chosen(capsys, monkeypatch):
    idle = {"ours": 0.1, "of_others": 0.0, "stolen": 0.0}
    waits = {"rollout_worker": 0.0, "policy_worker": 0.9, "learner": 0.9}
    parts = {name: {"wait": {"share": share, "milliseconds": 1.0}} for name, share in waits.items()}
    stage = Stage(1000.0, cores=idle, parts=parts)
    monkeypatch.setattr(benchmark_module, "run_stage", lambda *_: stage)
    assert command("benchmark")(["--env=gym_CartPole-v1", "--num_workers=3"]) == 0
    advice = " ".join(capsys.readouterr().out.split()).partition("simulation: try ")[2]
    assert re.match(r"a larger --(num_workers|inline_samplers) \(now \d", advice)


def test_an_env_that_cannot_be_made_is_found_before_the_first_stage(capsys):
    assert command("benchmark")([*CARTPOLE, '--env_kwargs={"nothing": 1}']) == 2
    assert "nothing" in capsys.readouterr().err


def reported(runs, *flags):
    own = ["--inline_samplers=0", "--num_batches_per_iteration=2"]
    machine = {"cpu": "a CPU", "cores": 8, "memory_gb": 9.7, "gpus": []}
    lines = report(parse(BENCHMARK, [*CARTPOLE, *own, *flags]), runs, machine)
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
    rows, text = reported(runs, "--repeats=3")
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
    ):
        assert row in rows
    env_step, wait = (
        next(i for i, row in enumerate(rows) if row[0] == name) for name in ("env_step", "wait")
    )
    assert env_step < wait, "the largest share first"
    note = "note: other programs kept up to 0.8 cores busy, and the host of this virtual machine took up to"
    assert f"{note} 0.3 cores away (steal time): repeat it" in re.sub(" +", " ", text)
    assert "bottleneck: learner" in text


def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "sample_factory", "benchmark", "--env=doom_benchmark", "--num_workers=2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    parent = psutil.Process(process.pid)
    try:
        # The dummy sampler, two workers, four engines.
        wait_until(lambda: len(parent.children(recursive=True)) >= 7)
        started = parent.children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "interrupted\n"
    assert output.startswith("3 measurements of about 81 s each, until about ")
    assert output.splitlines()[1].startswith("1/3 simulation, random actions, ")
    wait_until(lambda: not alive(started))
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
    file = f"--json={out / 'all.json'}"
    argv = ["--env=gym_CartPole-v1", *small, "--seconds=4", "--warmup_seconds=0", file]
    assert command("benchmark")(argv) == 0
    printed = capsys.readouterr().out
    found = json.loads((out / "all.json").read_text())
    stages = found["stages"]
    assert list(stages) == ["simulation", "sampling", "training"]
    assert all(stage["fps"] > 0 for stage in stages.values())
    assert 0 < stages["training"]["ready_seconds"] < 600
    assert "-m sample_factory dummy_sampler " in stages["simulation"]["command"]
    assert "--sampler_only=True" in stages["sampling"]["command"]
    assert found["versions"]["torch"] and found["hardware"]["cores"] > 0
    assert found["repeats"] == 1 and len(found["fps_of_repeats"]["training"]) == 1
    assert "learner on cpu in" in printed and "bottleneck: " in printed
    assert not list(temporary.iterdir())
