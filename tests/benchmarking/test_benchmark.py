import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sample_factory import benchmark
from sample_factory.benchmarking import benchmark as benchmark_module
from sample_factory.benchmarking.benchmark_request import parse_arguments, with_values
from sample_factory.benchmarking.flag_sweep import SWEPT_FLAGS
from sample_factory.benchmarking.run_stage import StageFailed, counts, run_stage
from sample_factory.benchmarking.stage_measurement import Stage
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from tests.processes import alive

CARTPOLE = ["--env=gym_CartPole-v1", "--num_workers=2", "--num_envs_per_worker=4"]


def test_flags_of_training_are_passed_on_as_typed():
    typed = [*CARTPOLE, "--encoder_mlp_layers", "16", "8", "--normalize_input", "--seed=3"]
    request = parse_arguments(
        ["--seconds=5", *typed, "--sweep", "--compare", "v1=1e3", "--compare=v2 (a=b)=20"]
    )
    assert list(request.training_flags) == typed
    flags = request.flags
    assert (flags.seconds, flags.warmup_seconds, flags.sweep) == (5.0, 15.0, True)
    assert request.others == (("v1", 1000.0), ("v2 (a=b)", 20.0))
    assert request.config.model.encoder_mlp_layers == (16, 8)


def test_a_saved_experiment_of_the_same_name_is_ignored(tmp_path):
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
        ([*CARTPOLE, "--seconds=soon"], "--seconds: 'soon' is not a number"),
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


def test_a_chart_without_matplotlib_is_an_error_before_anything_runs(capsys, monkeypatch):
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
    request = parse_arguments(["--num_workers", "2", "--env=gym_CartPole-v1", "--seed=3", "--batch_size=64"])
    changed = with_values(request, {"num_workers": 4, "batch_size": 128})
    assert list(changed.training_flags) == [
        "--env=gym_CartPole-v1",
        "--seed=3",
        "--num_workers=4",
        "--batch_size=128",
    ]
    assert counts(changed.config).rollout_workers == 4
    assert counts(changed.config).samples_per_iteration == 128 * 2  # two batches, this env's default


def test_a_sweep_measures_with_the_fastest_values_and_prints_the_command(capsys, monkeypatch, tmp_path):
    def fake_run(flags, config, name, seconds, folder):
        measured.append((name, seconds))
        return Stage("command", 1000.0 * config.sampling.num_envs_per_worker, None, None, None, {})

    measured = []
    monkeypatch.setattr(benchmark_module, "run_stage", fake_run)
    argv = [*CARTPOLE, "--sweep", "--sweep_seconds=4", "--seconds=30", f"--json={tmp_path / 'all.json'}"]
    argv += ["--num_envs_per_worker=2", "--inline_samplers=0", f"--sweep_cfg={tmp_path / 'fast.json'}"]
    assert benchmark.main(argv) == 0
    printed = capsys.readouterr().out.splitlines()
    best = "--num_envs_per_worker=16 --inline_samplers=0 --worker_num_splits=2 --policy_workers_per_policy=1"
    assert printed[-1] == (
        "the fastest: python -m sample_factory.train --env=gym_CartPole-v1 "
        f"{best} --batch_size=1024 --num_workers=2"
    )
    fast = tmp_path / "fast.json"
    assert any(str(fast) in line for line in printed)
    config = parse_config([f"--cfg={fast}"], resolve_family)
    assert config.env_name == "gym_CartPole-v1" and config.sampling.num_envs_per_worker == 16
    assert json.loads(fast.read_text()).keys() == {"env", *SWEPT_FLAGS}
    assert measured[0] == ("training", (15.0, 4.0))
    assert measured[-3:] == [(name, (15.0, 30.0)) for name in ("simulation", "sampling", "training")]
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["stages"]["training"]["fps"] == 16000
    assert found["sweep"][1]["values"]["num_envs_per_worker"] == 4


def test_a_stage_that_fails_prints_the_end_of_its_output_and_is_exit_code_1(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    argv = [*CARTPOLE, "--batch_size=96", "--async_rl=False", "--seconds=2", "--warmup_seconds=0"]
    assert benchmark.main(argv) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert error[0].startswith("error: training: failed with exit code 2; the end")
    assert "must be a multiple of" in error[-1] and len(error) <= 21
    assert not list(tmp_path.iterdir())


def test_an_env_that_cannot_be_made_is_found_before_the_first_stage(capsys):
    assert benchmark.main([*CARTPOLE, '--env_kwargs={"nothing": 1}']) == 2
    assert "has no argument 'nothing'" in capsys.readouterr().err


def test_flags_that_do_not_fit_together_are_found_by_the_stage_itself(tmp_path):
    request = parse_arguments([*CARTPOLE, "--async_rl=False", "--batch_size=96"])
    with pytest.raises(StageFailed, match="must be a multiple of") as failure:
        run_stage(request.training_flags, request.config, "training", (0.0, 2.0), tmp_path)
    assert "exit code 2" in str(failure.value) and "must be a multiple of" in failure.value.note


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
    assert output.splitlines()[1].startswith("1/3 simulation, random actions, until about ")
    assert len(started) >= 7
    assert not alive(started)
    assert not list(tmp_path.iterdir())


def test_all_three_stages_of_a_real_run(capsys, monkeypatch, tmp_path):
    temporary = tmp_path / "temporary"
    out = tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    small = ["--rollout=16", "--batch_size=64", "--encoder_mlp_layers", "16", "--hidden_size=16"]
    files = [f"--json={out / 'all.json'}", f"--chart={out / 'bars.png'}", "--compare=v1=1000"]
    argv = [*CARTPOLE, *small, "--device=cpu", "--seconds=2", "--warmup_seconds=0", *files]
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
    assert max(map(len, printed.splitlines())) <= 80, "readable on a small terminal"
    assert "1 run of 2 s (after 0 s of warm-up)" in " ".join(printed.split())
    assert found["repeats"] == 1 and len(found["fps_of_repeats"]["training"]) == 1
    assert "learner on cpu in" in printed and "v1 " in printed and "bottleneck: " in printed
    assert (out / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert not list(temporary.iterdir())
