"""--serial_mode is deterministic: what a fixed seed gives is bit-equal."""

import pytest
import torch

from sample_factory.config.config import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.experiment import run_experiment
from tests.system.running import SMALL

pytestmark = pytest.mark.timeout(120)


def train(train_dir, name, *flags):
    argv = [
        "--env=gym_CartPole-v1",
        f"--experiment={name}",
        f"--train_dir={train_dir}",
        "--serial_mode=True",
        "--seed=3",
        "--train_for_env_steps=2048",
        *SMALL,
        *flags,
    ]
    config = parse_config(argv, resolve_family)
    assert run_experiment(config, resolve_family("gym_CartPole-v1")) == 0
    newest = max((train_dir / name / "checkpoint_p0").glob("checkpoint_*.pth"))
    return torch.load(newest, weights_only=True)


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.parametrize("extra", [[], ["--use_rnn=True", "--ppo_epochs=2", "--num_batches_per_iteration=2"]])
def test_two_runs_with_one_seed_are_bit_equal(tmp_path, extra):
    first, second = (train(tmp_path, name, *extra) for name in ("first", "second"))
    assert first["train_step"] > 0 and same(first, second)


def test_another_seed_gives_other_weights(tmp_path):
    assert not same(train(tmp_path, "a")["model"], train(tmp_path, "b", "--seed=4")["model"])
