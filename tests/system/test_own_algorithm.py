"""An algorithm that a user's script registers trains in the learner's process."""

import torch

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.training.run import train_config
from tests.system import own_algorithm
from tests.system.running import SMALL, run, scalars

ENV = "gym_CartPole-v1"
FLAGS = [
    f"--env={ENV}",
    "--algo=TEMPERED",
    "--experiment=a",
    "--use_rnn=False",
    "--normalize_returns=False",
    *SMALL,
]


def newest(folder):
    path = max((folder / "checkpoint_p0").glob("checkpoint_*.pth"))
    return torch.load(path, weights_only=True)


def test_it_trains_is_summarised_and_resumes_with_its_own_modules(tmp_path):
    """First in processes, by its script; then in this process."""
    result = run("own_algorithm.py", tmp_path, *FLAGS, "--train_for_env_steps=1500")
    assert result.returncode == 0, result.stdout
    first = newest(tmp_path / "a")
    assert first["temperature"]["num_steps"] == first["train_step"] > 10
    assert first["temperature"]["log"] != own_algorithm.START_LOG
    assert "temperature_optimizer" in first and "target_optimizer" not in first, "target is not trained"
    assert first["target"].keys() == first["model"].keys()
    flags = [*FLAGS, f"--train_dir={tmp_path}", "--train_for_env_steps=3000", "--serial_mode=True"]
    assert train_config(parse_config(flags, resolve_family)).status != "failed"
    second = newest(tmp_path / "a")
    assert second["train_step"] > first["train_step"]
    assert second["temperature"]["num_steps"] == second["train_step"]
    summaries = scalars(tmp_path / "a")
    assert {"train/temperature", "train/temperature_loss", "train/policy_loss"} <= summaries.keys()
