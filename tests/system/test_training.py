"""Whole runs of the train command, with processes."""

import json

import pytest
import torch

from tests.system.running import (
    SMALL,
    assert_all_gone,
    descendants,
    interrupt,
    run,
    scalars,
    start,
    wait_for_line,
)

pytestmark = pytest.mark.timeout(180)


def checkpoint(experiment):
    newest = max((experiment / "checkpoint_p0").glob("checkpoint_*.pth"))
    return torch.load(newest, weights_only=True)


@pytest.mark.parametrize("queue", ["sockets", "faster_fifo"])
def test_a_run_ends_by_itself_and_leaves_what_a_user_expects(tmp_path, queue):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", "--train_for_env_steps=3000", f"--queue={queue}"]
    done = run("train", tmp_path, *flags, *SMALL)
    assert done.returncode == 0, done.stdout
    experiment = tmp_path / "a"
    assert checkpoint(experiment)["env_steps"] >= 3000
    saved = json.loads((experiment / "cfg.json").read_text())
    assert saved["batch_size"] == 128 and saved["cli_args"]["env"] == "gym_CartPole-v1"
    assert "env frames" in (experiment / "sf_log.txt").read_text()
    assert {"0_aux/_fps", "0_aux/avg_reward", "train/loss", "train/entropy"} <= set(scalars(experiment))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("samplers", ["--policy_workers_per_policy=2", "--inline_samplers=1"])
def test_a_run_on_a_gpu_acts_by_cuda_graphs(tmp_path, precision, samplers):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", "--train_for_env_steps=3000", "--use_rnn=True"]
    flags += [*SMALL, "--device=gpu", f"--precision={precision}", samplers]
    done = run("train", tmp_path, *flags)
    assert done.returncode == 0 and checkpoint(tmp_path / "a")["env_steps"] >= 3000, done.stdout
    assert "answers requests on cuda:0 by CUDA graphs" in done.stdout
    assert "no CUDA graphs" not in done.stdout and "graphs are switched off" not in done.stdout


def test_inline_samplers_share_out_the_workers_and_need_no_others(tmp_path):
    flags = ["--env=gym_CartPole-v1", "--vector_env_copies=3", "--experiment=a", *SMALL]
    process = start("train", tmp_path, *flags, "--inline_samplers=2", "--num_workers=3")
    wait_for_line(process, "reward")
    family = descendants(process)
    assert sorted(child.name() for child in family) == ["learner_0", "sampler_0", "sampler_1"]
    interrupt(process)
    assert process.wait(timeout=20) == 0
    assert_all_gone(family)
    assert checkpoint(tmp_path / "a")["env_steps"] > 0


def test_more_inline_samplers_than_workers_are_refused(tmp_path):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]
    done = run("train", tmp_path, *flags, "--inline_samplers=3")
    assert done.returncode == 2 and "--num_workers=2" in done.stdout
    assert not (tmp_path / "a").exists()


def test_a_dead_inline_sampler_ends_the_run_and_is_named(tmp_path):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]
    process = start("train", tmp_path, *flags, "--inline_samplers=1")
    wait_for_line(process, "reward")
    family = descendants(process)
    next(child for child in family if child.name() == "sampler_0").kill()
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1 and "sampler_0" in output
    assert_all_gone(family)


def test_the_same_command_resumes_where_ctrl_c_stopped_it(tmp_path):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", "--lr_schedule=kl_adaptive_minibatch", *SMALL]
    process = start("train", tmp_path, *flags, "--train_for_env_steps=1000000000")
    wait_for_line(process, "reward")
    family = descendants(process)
    assert len(family) >= 4
    interrupt(process)
    assert process.wait(timeout=20) == 0
    assert_all_gone(family)
    before = checkpoint(tmp_path / "a")
    assert before["env_steps"] > 0

    more = before["env_steps"] + 2000
    done = run("train", tmp_path, *flags, f"--train_for_env_steps={more}")
    assert done.returncode == 0, done.stdout
    after = checkpoint(tmp_path / "a")
    assert f"{before['train_step']} SGD steps, {before['env_steps']} env frames" in done.stdout
    assert after["train_step"] > before["train_step"] and after["env_steps"] >= more
    steps = [float(state["step"]) for state in after["optimizer"]["state"].values()]
    assert steps == [after["train_step"]] * len(steps), "Adam carries on counting"
    first_report = min(x for x, _ in scalars(tmp_path / "a")["train/loss"])
    assert first_report <= before["env_steps"]


@pytest.mark.parametrize(
    "extra", [["--use_rnn=True"], ["--use_rnn=True", "--rnn_type=lstm", "--recurrence=4"], []]
)
def test_what_acted_and_what_is_trained_agree(tmp_path, extra):
    """With alternation and fp32, the probability ratio of the first pass over each batch is exactly 1."""
    once = ["--ppo_epochs=1", "--num_batches_per_iteration=1"]
    flags = ["--async_rl=False", "--train_for_env_steps=6000", *once, *SMALL, *extra]
    done = run("train", tmp_path, "--env=gym_CartPole-v1", "--experiment=a", *flags)
    assert done.returncode == 0, done.stdout
    numbers = scalars(tmp_path / "a")
    assert max(value for _, value in numbers["train/version_diff_max"]) == 0
    assert max(value for _, value in numbers["train/ratio_mean"]) < 1e-5


def test_a_flag_that_does_not_fit_leaves_the_experiment_as_it_was(tmp_path):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]
    assert run("train", tmp_path, *flags, "--train_for_env_steps=500").returncode == 0
    before = (tmp_path / "a" / "cfg.json").read_text()
    done = run("train", tmp_path, *flags, "--encoder_mlp_layers", "32", "--train_for_env_steps=5000")
    assert done.returncode == 1 and "size mismatch" in done.stdout
    done = run(
        "train", tmp_path, *flags, "--async_rl=False", "--batch_size=144", "--restart_behavior=overwrite"
    )
    assert done.returncode == 2 and "the nearest that works is" in done.stdout
    assert (tmp_path / "a" / "cfg.json").read_text() == before
    assert run("train", tmp_path, *flags, "--train_for_env_steps=1500").returncode == 0


def test_a_failing_env_ends_the_run_with_its_traceback(tmp_path):
    done = run("train", tmp_path, "--env=gym_no_such_module:Env-v0", "--experiment=a", *SMALL)
    assert done.returncode == 1
    assert "no_such_module" in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env=gym_CartPole-v1", "--num_wrokers=2"], "did you mean --num_workers"),
        (["--env=doom_batle"], "did you mean doom_battle"),
        (["--env=gym_CartPol-v1"], "Did you mean: `CartPole`"),
        (["--env=gym_CartPole-v1", "--batch_size=1000"], "multiple of --rollout"),
        (["--env=gym_CartPole-v1", "--gamma=2"], "at most 1"),
        (["--env=gym_CartPole-v1", "--async_rl=maybe"], "True or False"),
        ([], "--env is missing"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, flags, message):
    done = run("train", tmp_path, "--experiment=a", *flags)
    assert done.returncode == 2
    assert message in done.stdout and len(done.stdout.strip().splitlines()) == 1
    assert not (tmp_path / "a").exists()
