import json
import re

import numpy as np
import pytest

from sample_factory import benchmark
from sample_factory.benchmarking import gpu_suite
from sample_factory.benchmarking.benchmark import with_chosen_values
from sample_factory.benchmarking.benchmark_flags import BenchmarkFlags, parse_arguments, parse_suite
from sample_factory.benchmarking.gpu_suite import (
    copied_mb,
    doom_size,
    hand_over_free,
    learner_alone,
    make_rows,
    synthetic_buffers,
)
from sample_factory.benchmarking.stages import Stage, StageFailed
from sample_factory.config.flags import ConfigError
from tests.counting import counts

SMALL = ["--num_workers=2", "--num_envs_per_worker=2", "--batch_size=64", "--rollout=16", "--device=cpu"]
SMALL += ["--hidden_size=8", "--encoder_mlp_layers", "16", "--inline_samplers=0"]


@pytest.fixture(scope="module")
def plan():
    """Of CartPole: 4 numbers of float32 to observe, 2 logits and 1 action, a GRU of 8."""
    flags = ["--env=gym_CartPole-v1", "--use_rnn=True", *SMALL, "--num_batches_per_iteration=2"]
    return with_chosen_values(parse_arguments(flags))[1]


@pytest.mark.parametrize(("cores", "size"), [(1, (1, 16)), (16, (16, 16)), (48, (48, 8)), (96, (64, 8))])
def test_doom_has_a_worker_for_each_core_and_at_most_64(cores, size):
    assert doom_size(cores) == size


@pytest.mark.parametrize("cores", [1, 16, 96])
def test_the_flags_of_all_rows_are_valid_together(cores):
    rows = make_rows(cores)
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        config = parse_arguments([*row.flags, "--device=cpu"])
        assert config.run.device == "cpu" and max(map(len, row.name.splitlines())) <= 26


def test_the_suite_takes_flags_of_training_and_few_of_the_benchmark():
    assert parse_suite(["--env=doom_basic"]) is None
    flags, typed = parse_suite(["--suite=gpu", "--seconds=20", "--device=cpu", "--seed=3"])
    assert (flags.seconds, flags.warmup_seconds, typed) == (20.0, 5.0, ["--device=cpu", "--seed=3"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--suite=gpus"], "--suite=gpus: choose one of gpu"),
        (["--suite=gpu", "--sweep"], "--sweep has no effect beside --suite"),
        (["--suite=gpu", "--seconds=0"], "--seconds=0.0"),
        (["--suite=gpu", "--json=/no/where/a.json"], "its folder does not exist"),
        (["--suite=gpu", "--batch_sise=64"], "did you mean --batch_size?"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(capsys, argv, words):
    assert benchmark.main(argv) == 2
    printed = capsys.readouterr()
    assert words in printed.err and not printed.out


def test_what_is_copied_follows_from_shapes_and_speed(plan):
    """6,400 steps and 50 iterations of two batches of 64 in a second, with 1,000 weights."""
    observation, state, outputs, other = 4 * 4, 8 * 4, (1 + 2 + 2) * 4, 15
    trajectory = 17 * observation + state + 16 * (outputs + other)
    weights = 50 * 1000 * 4
    learner = copied_mb(plan, 6400.0, 1000, acts=False)
    assert learner.keys() == {"to_gpu", "from_gpu"}
    assert np.allclose(list(learner.values()), (400 * trajectory / 1e6, weights / 1e6))
    both = copied_mb(plan, 6400.0, 1000, acts=True)
    to_gpu = 400 * trajectory + 6400 * (observation + state) + weights
    assert np.allclose(list(both.values()), (to_gpu / 1e6, (weights + 6400 * (outputs + state)) / 1e6))


def test_a_learner_alone_trains_on_all_samples_of_made_up_trajectories(plan):
    sent = plan.to_send()._replace(family=None)
    stage = learner_alone(sent, 0.0, 0.2)
    assert stage.fps > 0 and stage.learner == "on cpu in fp32" and stage.num_parameters > 100
    buffers = synthetic_buffers(sent)
    tickets = []
    hand_over_free(buffers, tickets)
    assert sorted(tickets) == list(range(buffers.topology.num_buffers))
    assert counts(buffers) == (0, 0, len(tickets))
    hand_over_free(buffers, tickets)
    assert len(tickets) == buffers.topology.num_buffers, "none is handed over twice"


def test_the_table_has_what_was_measured_and_notes_say_why_a_row_is_missing():
    rows = make_rows(4)
    waits = {"rollout_worker": 0.6, "policy_worker": 0.02, "learner": 0.5}
    parts = {name: {"wait": {"share": share, "milliseconds": None}} for name, share in waits.items()}
    cores = {"ours": 3.4, "of_others": 0.1, "stolen": 0.2}
    measured = Stage(12345.6, cores=cores, parts=parts, gpu_busy=0.415, warnings=("no CUDA graphs",))
    results = [
        rows[0]._replace(stage=measured, copied={"to_gpu": 1234.5, "from_gpu": 5.4}),
        rows[4]._replace(stage=Stage(99.0)),
        rows[1]._replace(why="it needs a GPU"),
        rows[3]._replace(failure="training: failed; the end of its output:\nTraceback"),
    ]
    hardware = {"cpu": "a CPU", "cores": 4, "gpus": []}
    lines = gpu_suite.report(results, hardware, BenchmarkFlags(seconds=15.0))
    table = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert ["Doom", "12,346", "42%", "1,234", "5", "3.4", "inference"] in table
    assert ["Doom's learner alone", "99", "n/a", "-", "-", "n/a", "learner"] in table
    assert [line for line in lines if line.startswith("note: ")] == [
        "note: Doom: no CUDA graphs",
        "note: Doom, no CUDA graphs: left out: it needs a GPU",
        "note: Doom, fp32: failed: training: failed; the end of its output:",
        "note: 4 workers x 16 envs of Doom for 4 cores, instead of 64 x 8 where there are as many cores",
        "note: the host of this virtual machine took up to 0.2 cores away (steal time)",
    ]


def test_a_row_that_fails_does_not_end_the_suite_and_each_row_is_in_the_file(monkeypatch, tmp_path, capsys):
    def measured(row, typed, flags, folder):
        if row.name == "Doom":
            raise StageFailed("training", "failed", "a broken engine")
        if row.name == "CartPole, 1,000 copies":
            raise ConfigError("--inline_samplers=2 is more than --num_workers=1")
        return row._replace(stage=Stage(10.0, learner="on cpu in fp32"))

    monkeypatch.setattr(gpu_suite, "_measured", measured)
    file = tmp_path / "gpu.json"
    assert benchmark.main(["--suite=gpu", "--device=cpu", f"--json={file}"]) == 1
    printed = capsys.readouterr()
    assert (
        "2 of 8 rows failed: Doom, CartPole, 1,000 copies" in printed.err
        and "2/8 Doom, no CUDA graphs ... left out" in printed.out
    )
    rows = json.loads(file.read_text())["rows"]
    assert list(rows) == [row.name for row in make_rows(2)]
    assert "a broken engine" in rows["Doom"]["failure"] and rows["Doom, fp32"]["fps"] == 10.0
    assert "because of --device=cpu" in rows["Doom, no CUDA graphs"]["left_out"]
