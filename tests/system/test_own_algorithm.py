"""An algorithm that a user's script registers trains in the learner's process."""

from tests.system import own_algorithm
from tests.system.running import SMALL, newest_state, run, scalars, train

ENV = "gym_CartPole-v1"
FLAGS = [
    f"--env={ENV}",
    "--algo=TEMPERED",
    "--experiment=a",
    "--use_rnn=False",
    "--normalize_returns=False",
    *SMALL,
]


def test_it_trains_is_summarised_and_resumes_with_its_own_modules(tmp_path):
    """First in processes, by its script; then in this process."""
    result = run("own_algorithm.py", tmp_path, *FLAGS, "--train_for_env_steps=1500")
    assert result.returncode == 0, result.stdout
    first = newest_state(tmp_path / "a")
    assert first["temperature"]["num_steps"] == first["train_step"] > 10
    assert first["temperature"]["log"] != own_algorithm.START_LOG
    assert "temperature_optimizer" in first and "target_optimizer" not in first, "target is not trained"
    assert first["target"].keys() == first["model"].keys()
    second = train(tmp_path, *FLAGS, "--train_for_env_steps=3000", "--serial_mode=True")
    assert second["train_step"] > first["train_step"]
    assert second["temperature"]["num_steps"] == second["train_step"]
    summaries = scalars(tmp_path / "a")
    assert {"train/temperature", "train/temperature_loss", "train/policy_loss"} <= summaries.keys()
