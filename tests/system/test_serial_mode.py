"""--serial_mode is deterministic: two runs with one seed are bit-equal."""

import itertools

import pytest
import torch

from sample_factory.envs.env_registry import register_env
from tests.system import running
from tests.system.nasty_env import Nasty
from tests.system.running import SMALL, scalars


def train(train_dir, name, *flags, env="gym_CartPole-v1"):
    place = [f"--env={env}", f"--experiment={name}", "--serial_mode=True", "--seed=3"]
    return running.train(train_dir, *place, "--train_for_env_steps=1024", *SMALL, *flags)


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.parametrize("extra", [[], ["--use_rnn=True", "--ppo_epochs=2", "--num_batches_per_iteration=2"]])
def test_two_runs_with_one_seed_are_bit_equal_and_another_seed_gives_other_weights(tmp_path, extra):
    first, second = (train(tmp_path, name, *extra) for name in ("first", "second"))
    assert first["train_step"] > 0 and same(first, second)
    other = train(tmp_path, "other", *extra, "--seed=4", "--train_for_env_steps=256")
    assert not same(first["model"], other["model"])


def test_two_runs_on_envpool_with_missions_are_bit_equal(tmp_path):
    flags = ["--vector_env_copies=2", "--recurrence=16", "--train_for_env_steps=256"]
    env = "minigrid_GoToDoor-5x5-v0"
    first, second = (train(tmp_path, name, *flags, env=env) for name in ("first", "second"))
    assert first["train_step"] > 0 and same(first, second)


CORES = [["--use_rnn=False"], ["--use_rnn=True"], ["--use_rnn=True", "--rnn_type=lstm", "--recurrence=4"]]
LATER_CORES = [
    ["--use_rnn=True", "--rnn_type=mingru", "--recurrence=4"],
    ["--use_rnn=True", "--rnn_type=gtrxl", "--recurrence=4", "--gtrxl_memory=6"],
]


@pytest.mark.parametrize(
    ("model", "with_vtrace"),
    [*itertools.product([*CORES, *LATER_CORES], ["True"]), (CORES[-1], "False")],
)
def test_acting_and_training_agree_even_where_an_env_gives_broken_numbers(tmp_path, model, with_vtrace):
    """On-policy the ratio is 1 at every valid step: with the same resets and masks."""
    register_env("nasty_", lambda *args, **kwargs: Nasty())
    flags = ["--async_rl=False", "--ppo_epochs=1", "--batch_size=256", f"--with_vtrace={with_vtrace}", *model]
    state = train(tmp_path, "a", *flags, env="nasty_env")
    assert all(tensor.isfinite().all() for tensor in state["model"].values()) and state["skipped_steps"] == 0
    assert 0.5 < state["samples"] / (256 * state["train_step"]) < 0.9, "some steps are masked"
    assert max(value for _, value in scalars(tmp_path / "a")["train/ratio_mean"]) < 1e-5
