"""An algorithm that a user's script registers trains in the learner's process."""

import torch

from tests.system.running import SMALL, run, scalars

FLAGS = [
    "--env=gym_CartPole-v1",
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
    result = run("own_algorithm.py", tmp_path, *FLAGS, "--train_for_env_steps=4000")
    assert result.returncode == 0, result.stdout
    first = newest(tmp_path / "a")
    assert first["temperature"]["num_steps"] == first["train_step"] > 20
    assert first["temperature"]["log"] != -4.0
    assert "temperature_optimizer" in first and "target_optimizer" not in first, "target is not trained"
    assert first["target"].keys() == first["model"].keys()
    result = run("own_algorithm.py", tmp_path, *FLAGS, "--train_for_env_steps=8000")
    assert result.returncode == 0, result.stdout
    second = newest(tmp_path / "a")
    assert second["train_step"] > first["train_step"]
    assert second["temperature"]["num_steps"] == second["train_step"]
    summaries = scalars(tmp_path / "a")
    assert {"train/temperature", "train/temperature_loss", "train/policy_loss"} <= summaries.keys()
