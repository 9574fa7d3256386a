"""Whole runs with each built-in algorithm: two policies that evolve, with a memory, and a resume."""

import pytest

from sample_factory.config.algorithms import BUILT_IN
from tests.system.running import SMALL, scalars, train

ENV = "gym_CartPole-v1"
EVOLVING = [
    "--num_policies=2",
    "--with_pbt=True",
    "--pbt_start_mutation=256",
    "--pbt_period_env_steps=256",
    "--pbt_mutation_rate=1",
    "--pbt_replace_reward_gap=0",
    "--pbt_replace_fraction=0.5",
]


@pytest.mark.parametrize("algo", [name for name in BUILT_IN if name != "APPO"])
def test_policies_train_evolve_take_over_and_resume(tmp_path, algo):
    flags = [f"--env={ENV}", f"--algo={algo}", "--experiment=a", *EVOLVING, *SMALL]
    flags += ["--serial_mode=True", "--seed=1"]
    first, second = (train(tmp_path, *flags, f"--train_for_env_steps={frames}") for frames in (512, 1024))
    assert second["train_step"] > first["train_step"] >= 3
    assert second["env_steps"] > first["env_steps"] >= 512
    assert second["skipped_steps"] == 0
    assert {"train/policy_loss", "train/value_loss", "train/kl_divergence"} <= scalars(tmp_path / "a").keys()
