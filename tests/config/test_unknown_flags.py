"""Flags of other libraries, and misspelt ones, are errors that name the right flag."""

import argparse
import re
from pathlib import Path

import pytest

from sample_factory.config import unknown_flags
from sample_factory.config.flags import ConfigError, section_fields
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import RETIRED_FLAGS, TRAINING_SECTIONS
from sample_factory.config.unknown_flags import refuse_unknown_flags, suggestion
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.match_command import MatchFlags

KNOWN = [
    name
    for section in (*TRAINING_SECTIONS.values(), MatchFlags)
    for field, _ in section_fields(section)
    for name in (field.name, *field.metadata["aliases"])
]


def refusal(*argv, env="gym_CartPole-v1"):
    """Returns the message for a command line with unknown flags."""
    with pytest.raises(ConfigError) as refused:
        parse_config([f"--env={env}"] * bool(env) + list(argv), resolve_family)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("lr", "--learning_rate"),
        ("total-timesteps", "--train_for_env_steps"),
        ("n_envs", "--num_workers and --num_envs_per_worker"),
        ("vec.num-envs", "--num_workers and --num_envs_per_worker"),
        ("save_freq", "--save_every_sec, in seconds"),
        ("cuda", "--device=gpu or --device=cpu"),
        ("lstm", "--use_rnn=True --rnn_type=lstm"),
        ("batch-size", "--batch_size"),
        ("train.learning-rate", "--learning_rate"),
    ],
)
def test_a_flag_of_another_library_names_ours(theirs, ours):
    assert refusal(f"--{theirs}=1").startswith(f"unknown flag --{theirs}=1: here it is {ours}")
    assert refusal(f"--{theirs}", "1").startswith(f"unknown flag --{theirs}: here it is {ours}")


def test_every_synonym_leads_to_a_flag_and_is_none_itself():
    for flag, names in unknown_flags._SYNONYMS.items():
        (first, *_) = re.findall(r"--(\w+)", flag)
        assert first in KNOWN or first in RETIRED_FLAGS, flag
        assert not set(names.split()) & {*KNOWN, *RETIRED_FLAGS}, flag
    given = [name for names in unknown_flags._SYNONYMS.values() for name in names.split()]
    assert len(given) == len(set(given))


def test_several_unknown_flags_are_reported_at_once():
    message = refusal("--lr=1", "--gama=0.9", "--cuda", "--qqqqq=3")
    for part in ("--lr=1: here it is", "did you mean --gamma?", "--cuda: here it is", "flag --qqqqq=3"):
        assert part in message


@pytest.mark.parametrize("flag", ["mlflow", "comet", "neptune"])
def test_trackers_are_answered_with_tensorboard(flag):
    assert "curves are always written for TensorBoard" in refusal(f"--{flag}")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env_id=CartPole-v1"], "unknown flag --env_id=CartPole-v1: here it is --env"),
        (["--env-name", "a"], "unknown flag --env-name: here it is --env"),
        (["-e", "doom_basic"], "unknown flag -e: here it is --env"),
        (["doom_basic"], "unexpected argument doom_basic: every value follows its flag, as in --env=doom_"),
        (["env=doom_basic"], "a flag begins with two dashes, --env=doom_basic"),
        ([], "--env is missing, e.g. --env=doom_basic or --env=gym_CartPole-v1"),
        (["--env="], "--env is missing, e.g. --env=doom_basic"),
    ],
)
def test_an_env_that_is_missing_or_given_otherwise_says_how_to_give_it(argv, message):
    assert message in refusal(*argv, env="")


def test_a_value_without_dashes_is_shown_with_them():
    assert "two dashes, --learning_rate=1" in refusal("learning_rate=1")


def test_a_synonym_is_suggested_only_where_its_flag_exists():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    with pytest.raises(ConfigError, match=r"^unknown flag --lr=3$"):
        refuse_unknown_flags(parser, ["--lr=3"])
    assert suggestion("lr", ["out", "learning_rate"]) == ": here it is --learning_rate"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("lr", "unknown flag lr: here it is learning_rate"),
        ("gama", "unknown flag gama; did you mean gamma?"),
        ("qqqqq", "unknown flag qqqqq"),
    ],
)
def test_a_file_of_flags_has_no_unknown_keys_unless_a_run_has_written_it(tmp_path, key, message):
    file = tmp_path / "flags.json"
    file.write_text(f'{{"{key}": 1}}')
    assert refusal(f"--cfg={file}") == f"{file}: {message}"
    file.write_text(f'{{"{key}": 1, "command_line": "--env=doom_basic"}}')
    config = parse_config(["--env=doom_basic", f"--cfg={file}", f"--train_dir={tmp_path}"], resolve_family)
    assert config.unknown == {key: 1}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--train_for_env_steps=1M", "'1M' is not an integer; write for example 1_000_000 or 1e6"),
        ("--encoder_mlp_layers=64,64", "'64,64' is not an integer; separate several values by spaces"),
        ("--num_epochs=x", "--ppo_epochs: 'x' is not an integer"),
        ("--gamma=high", "--gamma: 'high' is not a number"),
        ("--help=foo", "--help: invalid choice: 'foo' (choose from"),
    ],
)
def test_a_value_of_the_wrong_type_says_how_to_write_it(flag, message):
    assert message in refusal(flag)


def test_the_page_for_envs_that_do_not_learn_names_flags_of_others_as_the_suggestions_do():
    page = Path(unknown_flags.__file__).parent.parent / "envs" / "NOT_LEARNING.md"
    _, table = page.read_text().split("## Names in other libraries")
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `--")]
    assert len(rows) > 10
    for ours, *theirs in rows:
        flag = re.search(r"--\w+", ours)[0]
        for name in (name for cell in theirs if "/" not in cell for name in re.findall(r"`(\w+)`", cell)):
            assert f"--{name}" == flag or flag in suggestion(name, KNOWN), (flag, name)
