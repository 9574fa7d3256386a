"""NaN and inf in real runs: kept out of the weights, logged and counted; repeated ones end the run."""

import re

import torch

from tests.system.broken_numbers import LAST_GOOD_STEP
from tests.system.running import SMALL, newest_state, run, scalars


def train(tmp_path, *flags, ppo_epochs=4):  # hundreds of SGD steps within seconds
    return run(
        "broken_numbers.py",
        tmp_path,
        "--env=broken_numbers",
        "--experiment=a",
        *SMALL,
        "--batch_size=64",
        f"--ppo_epochs={ppo_epochs}",
        *flags,
    )


def last_lines(done):
    return "\n".join(done.stdout.splitlines()[-3:])


def tensors(state):
    """Returns all tensors of a checkpoint."""
    if isinstance(state, torch.Tensor):
        return [state]
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def all_finite(state):
    assert len(tensors(state)) > 10
    return all(tensor.isfinite().all() for tensor in tensors(state))


def test_a_run_continues_over_broken_numbers_logs_each_env_once_and_counts_them(tmp_path):
    model = ["--use_rnn=True", "--normalize_returns=True", "--encoder_custom=nan_now_and_then"]
    done = train(tmp_path, "--train_for_env_steps=4000", *model)
    assert done.returncode == 0, done.stdout
    logged = [line for line in done.stdout.splitlines() if "health/broken_numbers" in line]
    assert len(logged) == 2, done.stdout
    rewards = r"WARNING worker 1: env 1 \(broken_numbers\) gave agent 0 the reward (nan|inf|-inf); such steps"
    assert any(re.search(rewards, line) for line in logged)
    observations = "WARNING worker 0: env 2, agent 0: its observation had NaN or inf; such steps"
    assert any(observations in line for line in logged)
    state, numbers = newest_state(tmp_path / "a"), scalars(tmp_path / "a")
    assert all_finite(state) and state["train_step"] >= 100
    assert state["skipped_steps"] == -(-state["train_step"] // 10)
    assert numbers["train/skipped_steps"][-1][1] >= 1
    # Of two of the eight envs, every 50th step.
    assert 0.5 < numbers["health/broken_numbers"][-1][1] / (4000 / 8 * 2 / 50) < 4


def test_when_nothing_can_be_learned_the_run_ends_with_the_reason_and_saves_nothing_after_the_last_good_step(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("WEIGHTS_FILE", str(tmp_path / "weights"))
    # One SGD step per batch, so that LAST_GOOD_STEP is the last step of a batch, after which a checkpoint is
    # saved. Of several epochs, some are left out where the policy loss hardly changes.
    done = train(tmp_path, "--encoder_custom=nan_for_good", "--save_every_sec=1", ppo_epochs=1)
    assert done.returncode == 1
    reason = "loss nan and gradient norm nan were not finite for 20 steps in a row"
    assert reason in last_lines(done)
    state = newest_state(tmp_path / "a")
    assert all_finite(state)
    last_good = torch.load(tmp_path / "weights", weights_only=True)
    for name, tensor in last_good.items():
        saved = [value for key, value in state["model"].items() if key.endswith(name) and "encoder" in key]
        assert [torch.equal(tensor, value) for value in saved] == [True]
    steps = {float(of_one["step"]) for of_one in state["optimizer"]["state"].values()}
    assert steps == {LAST_GOOD_STEP}

    # Resumed, and now with a network whose answers are NaN.
    done = train(tmp_path, "--encoder_custom=nan_in_acting", "--serial_mode=True")
    assert f"resumes at {state['train_step']} SGD steps" in done.stdout and done.returncode == 1
    assert done.stdout.count("policy 0 answered its finite observation with NaN or inf") == 1
    assert "there was nothing to learn from in 200 steps in a row" in last_lines(done)
    assert newest_state(tmp_path / "a")["samples"] == state["samples"]
    assert newest_state(tmp_path / "a")["train_step"] == state["train_step"]
