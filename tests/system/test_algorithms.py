"""Whole runs with each built-in algorithm: two policies that evolve, with a memory, and a resume."""

import pytest

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.training.run import train_config
from tests.system.running import SMALL, newest_state, scalars

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
    states = []
    for frames in (512, 1024):
        argv = [
            f"--env={ENV}",
            f"--algo={algo}",
            "--experiment=a",
            f"--train_dir={tmp_path}",
            *EVOLVING,
            *SMALL,
        ]
        argv += ["--serial_mode=True", "--seed=1", f"--train_for_env_steps={frames}"]
        config = parse_config(argv, resolve_family)
        assert train_config(config).status != "failed"
        states.append(newest_state(tmp_path / "a"))
    first, second = states
    assert second["train_step"] > first["train_step"] >= 3
    assert second["env_steps"] > first["env_steps"] >= 512
    assert second["skipped_steps"] == 0
    assert {"train/policy_loss", "train/value_loss", "train/kl_divergence"} <= scalars(tmp_path / "a").keys()
