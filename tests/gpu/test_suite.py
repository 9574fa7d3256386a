import json

import pytest

from sample_factory.benchmarking.benchmark import plan_of
from sample_factory.benchmarking.benchmark_flags import BENCHMARK
from sample_factory.benchmarking.stages import Stage, StageFailed
from sample_factory.config.flags import ConfigError
from sample_factory.launch.command_line import parse
from sample_factory.launch.exit_codes import run_command
from tests.counting import counts
from tests.gpu import suite
from tests.gpu.suite import (
    doom_size,
    hand_over_free,
    learner_alone,
    learner_args,
    make_rows,
    synthetic_buffers,
)

SMALL = ["--num_workers=2", "--num_envs_per_worker=2", "--batch_size=64", "--rollout=16", "--device=cpu"]
SMALL += ["--hidden_size=8", "--encoder_mlp_layers", "16", "--inline_samplers=0"]


@pytest.mark.parametrize("cores, size", [(1, (1, 16)), (16, (16, 16)), (48, (48, 8)), (96, (64, 8))])
def test_doom_has_a_worker_for_each_core_and_at_most_64_and_all_flags_are_valid(cores, size):
    assert doom_size(cores) == size
    rows = make_rows(cores)
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert parse(BENCHMARK, [*row.flags, "--device=cpu"]).run.device == "cpu"


def test_a_learner_alone_trains_on_all_samples_of_made_up_trajectories():
    plan = plan_of(parse(BENCHMARK, ["--env=gym_CartPole-v1", "--use_rnn=True", *SMALL]))
    stage = learner_alone(learner_args(plan), synthetic_buffers(plan.sampling), 0.0, 0.2)
    assert stage.fps > 0 and stage.learner == "on cpu in fp32" and stage.num_parameters > 100
    buffers = synthetic_buffers(plan.sampling)
    tickets = []
    hand_over_free(buffers, tickets)
    assert sorted(tickets) == list(range(buffers.topology.num_buffers))
    assert counts(buffers) == (0, 0, len(tickets))
    hand_over_free(buffers, tickets)
    assert len(tickets) == buffers.topology.num_buffers, "none is handed over twice"


def test_a_row_that_fails_does_not_end_the_suite_and_each_row_is_in_the_file(monkeypatch, tmp_path, capsys):
    def measure(row, typed, seconds, folder):
        assert (typed, seconds) == (["--device=cpu"], 2.0)
        if row.name == "Doom":
            raise StageFailed("training", "failed", "a broken engine")
        if row.name == "CartPole, 1,000 copies":
            raise ConfigError("--inline_samplers=2 is more than --num_workers=1")
        return Stage(10.0, learner="on cpu in fp32")

    monkeypatch.setattr(suite, "_measure", measure)
    file = tmp_path / "gpu.json"
    assert run_command(suite.run_suite, ["--device=cpu", "--seconds=2", f"--json={file}"]) == 1
    printed = capsys.readouterr()
    assert "2 of 8 rows failed: Doom, CartPole, 1,000 copies" in printed.err
    assert "2/8 Doom, no CUDA graphs ... left out" in printed.out
    rows = json.loads(file.read_text())["rows"]
    assert list(rows) == [row.name for row in make_rows(2)]
    assert "a broken engine" in rows["Doom"]["failure"] and rows["Doom, fp32"]["fps"] == 10.0
    assert "because of --device=cpu" in rows["Doom, no CUDA graphs"]["left_out"]
    assert run_command(suite.run_suite, ["--batch_sise=64"]) == 2
    assert "did you mean --batch_size?" in capsys.readouterr().err
