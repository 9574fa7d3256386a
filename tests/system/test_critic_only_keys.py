"""Whole runs with --critic_only_keys."""

import pytest

from sample_factory.envs.env_registry import register_env
from tests.guided import Guided
from tests.mixed import MixedCounting
from tests.system.running import SMALL, newest_state, scalars, train
from tests.system.test_algorithms import EVOLVING

FLAGS = [*SMALL, "--serial_mode=True", "--seed=1", "--use_rnn=True", "--ppo_epochs=1", "--experiment=a"]


@pytest.fixture(autouse=True)
def envs():
    register_env("guided", lambda name: Guided())
    register_env("mixed_", lambda *args, **kwargs: MixedCounting())


def test_a_run_resumes_and_starts_another(tmp_path):
    flags = ["--env=guided", "--critic_only_keys=next/card"]
    first = train(tmp_path, *FLAGS, *flags, "--train_for_env_steps=300")
    resumed = train(tmp_path, *FLAGS, "--env=guided", "--train_for_env_steps=600")
    assert resumed["train_step"] > first["train_step"] and resumed["model"].keys() == first["model"].keys()
    other = train(
        tmp_path, *FLAGS, *flags, "--experiment=b", "--transfer_from=a", "--train_for_env_steps=100"
    )
    mean = "observation_normalizers.normalizers.0.count"
    assert other["model"][mean] > resumed["model"][mean], "the statistics are transferred too"


def test_a_population_takes_over_the_critic_too(tmp_path):
    flags = ["--env=guided", "--critic_only_keys=next/card", "--train_for_env_steps=1500", *EVOLVING]
    train(tmp_path, *FLAGS, *flags)
    taken = [policy for policy in range(2) if "zz_pbt/replaced_by" in scalars(tmp_path / "a", policy)]
    assert taken, "one policy has the weights of the other"
    models = [newest_state(tmp_path / "a", policy)["model"] for policy in range(2)]
    weights = [model["towers.1.core.rnn.weight_hh_l0"] for model in models]
    # Each has trained for a few steps since then; two initial ones are 5 apart.
    assert (weights[0] - weights[1]).norm() < 0.5


def test_kinds_of_agents_without_the_keys_have_a_critic_too(tmp_path):
    flags = ["--env=mixed_x", "--num_policies=2", "--critic_only_keys=where", "--train_for_env_steps=200"]
    train(tmp_path, *FLAGS, *flags)
    watcher, walker = (newest_state(tmp_path / "a", policy)["model"] for policy in range(2))
    actors, critics = (f"towers.{i}.encoder.encoders.1.layers.0.weight" for i in range(2))
    assert critics in watcher and actors not in watcher
    same = "towers.{}.encoder.encoders.0.layers.0.weight"
    assert walker[same.format(0)].shape == walker[same.format(1)].shape
