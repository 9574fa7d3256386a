"""Flags as keywords of Python functions, and as attributes of cfg."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch.objects_of_call import with_names


@pytest.fixture
def parse(tmp_path):
    def call(*argv, **keywords):
        given = {"env": "gym_FrozenLake-v1", "train_dir": tmp_path, **keywords}
        return parse_config(argv, resolve_family, keywords=with_names(given))

    return call


def test_values_of_python_and_numpy_become_those_of_the_flags(parse):
    config = parse(
        gamma=np.float32(0.5),
        batch_size=np.int64(64),
        train_for_env_steps=1e6,
        encoder_mlp_layers=[np.int64(8), 16],
        seed=None,
        env_kwargs={"is_slippery": False},
        transfer_from=Path("other"),
    )
    assert (config.learning.gamma, config.learning.batch_size) == (0.5, 64)
    assert config.monitoring.train_for_env_steps == 1_000_000
    assert config.model.encoder_mlp_layers == (8, 16)
    assert config.run.seed is None and config.run.transfer_from == "other"
    assert config.family.env_kwargs == '{"is_slippery": false}'


def test_keywords_are_typed_flags_which_override_arguments_and_are_written_as_a_command(parse):
    config = parse("--gamma=0.5", "--rollout=8", gamma=0.25, rnn_size=32)
    assert (config.learning.gamma, config.learning.rollout, config.model.hidden_size) == (0.25, 8, 32)
    assert config.typed["hidden_size"] == 32 and config.typed["gamma"] == 0.25
    assert config.argv[-2:] == ("--gamma=0.25", "--rnn_size=32")
    again = parse_config(config.argv, resolve_family)
    assert again.flat() == config.flat()


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("gama", 0.5, ["unknown flag gama", "did you mean gamma?"]),
        ("gamma", 3, ["gamma=3", "at most 1"]),
        ("gamma", "high", ["gamma = 'high'", "float"]),
        ("num_workers", [1, 2], ["num_workers = (1, 2)", "int"]),
        ("rnn_size", np.float32(0.5), ["hidden_size", "int"]),
        ("seed", True, ["seed = True", "int"]),
        ("env", ["gym_CartPole-v1", 3], ["env", "list"]),
        ("env", None, ["--env is missing"]),
    ],
)
def test_a_wrong_keyword_is_refused_by_its_name(parse, name, value, parts):
    with pytest.raises(ConfigError) as refused:
        parse(**{name: value})
    assert [part for part in parts if part not in str(refused.value)] == []


def test_several_envs_are_levels(parse):
    config = parse(env=["CartPole-v1", "Acrobot-v1"])
    assert (config.env_name, config.env.levels) == ("gym_CartPole-v1", ("gym_CartPole-v1", "gym_Acrobot-v1"))
    with pytest.raises(ConfigError, match="leave levels out"):
        parse(env=["CartPole-v1", "Acrobot-v1"], levels=["CartPole-v1"])


def test_cfg_reads_and_sets_flags_by_item_and_by_the_names_of_version_2(parse):
    cfg = parse(hidden_size=32).namespace()
    for same in (cfg, copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg))):
        assert same.rnn_size == same["rnn_size"] == same.hidden_size == same.get("rnn_size") == 32
        assert "rnn_size" in same and "rnn_size" not in vars(same)
    cfg.rnn_size = 64
    cfg["num_epochs"] = 3
    assert (cfg.hidden_size, cfg.ppo_epochs) == (64, 3)
    assert cfg.get("nothing", 7) == 7 and "nothing" not in cfg


def test_a_name_that_is_no_flag_is_an_error_with_the_nearest(parse):
    cfg = parse().namespace()
    with pytest.raises(AttributeError, match="cfg has no flag gama; did you mean gamma?"):
        cfg.gama  # noqa: B018
    with pytest.raises(KeyError, match="cfg has no flag gama; did you mean gamma?"):
        cfg["gama"]
