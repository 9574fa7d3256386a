"""Flags that do not exist, and values of the wrong type, are errors that say what would be right."""

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family

ENV = "--env=gym_CartPole-v1"


def refusal(*argv):
    """Returns the message for a command line that is refused."""
    with pytest.raises(ConfigError) as refused:
        parse_config(argv, resolve_family)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        ([ENV, "--gama=0.9"], ["unknown flag --gama=0.9", "--gamma?", "--help=all"]),
        ([ENV, "--batch-size", "64"], ["unknown flag --batch-size", "--batch_size?"]),
        ([ENV, "--train.learning-rate=1"], ["--learning_rate?"]),
        ([ENV, "--gama=1", "--qqqqq", "--rolout=8"], ["--gamma?", "--qqqqq;", "--rollout?"]),
        ([ENV, "--total_timesteps=9"], ["--total_timesteps=9", "envs/NOT_LEARNING.md"]),
        ([ENV, "learning_rate=1"], ["learning_rate=1", "--flag=value"]),
        (["doom_basic"], ["--env is missing", "--env=doom_basic"]),
        (["--env_id=CartPole-v1"], ["--env is missing"]),
        (["--env="], ["--env is missing"]),
        ([ENV, "--train_for_env_steps=1M"], ["--train_for_env_steps", "'1M'", "1e6"]),
        ([ENV, "--encoder_mlp_layers=64,64"], ["--encoder_mlp_layers", "'64,64'", "spaces"]),
        ([ENV, "--num_epochs=x"], ["--ppo_epochs", "'x' is not an integer"]),
        ([ENV, "--gamma=high"], ["--gamma", "'high' is not a number"]),
        ([ENV, "--gamma"], ["--gamma", "expected one argument"]),
        ([ENV, "--help=foo"], ["--help", "invalid choice: 'foo'"]),
    ],
)
def test_the_message_names_the_flag_and_what_would_be_right(argv, parts):
    message = refusal(*argv)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(("key", "message"), [("gama", "; did you mean gamma?"), ("qqqqq", "")])
def test_a_file_of_flags_has_no_unknown_keys_unless_a_run_has_written_it(tmp_path, key, message):
    file = tmp_path / "flags.json"
    file.write_text(f'{{"{key}": 1}}')
    assert refusal(ENV, f"--cfg={file}") == f"{file}: unknown flag {key}{message}"
    file.write_text(f'{{"{key}": 1, "command_line": "--env=doom_basic"}}')
    config = parse_config(["--env=doom_basic", f"--cfg={file}", f"--train_dir={tmp_path}"], resolve_family)
    assert config.unknown == {key: 1}
