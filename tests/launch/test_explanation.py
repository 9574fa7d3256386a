import itertools
import json
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest

from sample_factory import register_algorithm, register_env, train
from sample_factory.config.command import TRAIN
from sample_factory.config.flags import flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.evaluate import EVAL
from sample_factory.launch.command_line import explanation, run
from sample_factory.launch.plan import plan_run
from sample_factory.spaces.agent_kinds import AgentKinds

VECTOR = gym.spaces.Dict(obs=gym.spaces.Box(-1, 1, (3,), np.float32))


@pytest.fixture
def explain(tmp_path):
    """Returns flag -> (value, layer, what it would be otherwise) of a command line."""

    def explain(*argv, saved=None, command=TRAIN, keywords=None, plans=True):
        if saved is not None:
            (tmp_path / "a").mkdir(exist_ok=True)
            (tmp_path / "a" / "cfg.json").write_text(json.dumps(saved))
        argv = [f"--train_dir={tmp_path}", "--experiment=a", *argv]
        config = parse_config(argv, resolve_family, command, keywords=keywords)
        if plans:
            info = EnvInfo(AgentKinds.one(VECTOR, gym.spaces.Discrete(2), 1), 1)
            config = plan_run(config, resolve_family(config.env_name), info).config
        head, *lines = explanation(config).splitlines()
        columns = [head.index(word) for word in ("flag", "value", "set by", "otherwise")] + [None]
        rows = ([line[a:b].strip() for a, b in itertools.pairwise(columns)] for line in lines)
        return {name.removeprefix("--"): tuple(cells) for name, *cells in rows}

    return explain


@pytest.fixture(autouse=True)
def envs():
    register_env("of_family", lambda: None, defaults={"gamma": 0.5, "ppo_epochs": 2})
    register_env("plain", lambda: None)


def test_flags_at_their_defaults_are_not_listed(explain):
    rows = explain("--env=doom_basic", "--gamma=0.99", plans=False)
    assert "gamma" not in rows and "seed" not in rows


def test_a_typed_flag_names_the_layer_below_it(explain):
    assert explain("--env=plain", "--gamma=0.7")["gamma"] == ("0.7", "command line", "0.99")
    rows = explain("--env=of_family", "--gamma=0.7", "--ppo_epochs=2")
    assert rows["gamma"] == ("0.7", "command line", "0.5 (defaults of of_family)")
    assert rows["ppo_epochs"] == ("2", "command line", "2 (defaults of of_family)")
    row = explain("--env=of_family", "--gamma=0.99")["gamma"]
    assert row == ("0.99", "command line", "0.5 (defaults of of_family)"), "though it is the plain default"


def test_the_family_the_command_and_the_algorithm_are_layers(explain):
    def algorithm(flags, policy, rng):
        raise AssertionError

    register_algorithm("MINE", algorithm, defaults={"gamma": 0.8})
    command = TRAIN._replace(defaults={"gamma": 0.6, "ppo_epochs": 4})
    rows = explain("--env=of_family", "--algo=MINE", command=command, plans=False)
    assert rows["ppo_epochs"] == ("4", "defaults of train", "2 (defaults of of_family)")
    assert rows["gamma"] == ("0.8", "defaults of --algo=MINE", "0.6 (defaults of train)")


def test_recipes_saved_flags_and_scripts_are_layers(explain, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"gamma": 0.6, "ppo_epochs": 3, "gae_lambda": 0.5, "rnn_size": 32}))
    rows = explain("--env=of_family", f"--cfg={recipe}", plans=False)
    assert rows["gamma"] == ("0.6", f"{recipe}", "0.5 (defaults of of_family)")
    assert rows["hidden_size"] == ("32", f"{recipe}, as rnn_size", "512")
    saved = {"env": "of_family", "gamma": 0.7, "gae_lambda": 0.6}
    rows = explain(f"--cfg={recipe}", "--gae_lambda=0.9", saved=saved, keywords={"ppo_epochs": 5})
    assert rows["env"] == ("of_family", "saved cfg.json", "None")
    assert rows["gamma"] == ("0.7", "saved cfg.json", f"0.6 ({recipe})")
    assert rows["gae_lambda"] == ("0.9", "command line", "0.6 (saved cfg.json)")
    assert rows["ppo_epochs"] == ("5", "the script", f"3 ({recipe})")


def test_defaults_by_the_observation_are_a_layer_below_all_others(explain):
    rows = explain("--env=of_family", "--learning_rate=0.5", "--rollout=32")
    assert rows["max_grad_norm"] == ("0.5", "defaults for vectors", "4.0")
    assert rows["learning_rate"] == ("0.5", "command line", "0.001 (defaults for vectors)")
    assert rows["ppo_epochs"] == ("2", "defaults of of_family", "10 (defaults for vectors)")
    assert rows["rollout"] == ("32", "command line", "64 (defaults for vectors)")
    both = explain("--env=plain", "--rollout=16", "--batch_size=512")
    assert both["rollout"] == ("16", "command line", "32"), "--batch_size leaves it at its default"


def test_what_is_chosen_by_the_machine_is_a_layer(explain):
    rows = explain("--env=plain", "--num_workers=1")
    usual = rows["num_envs_per_worker"][0]
    assert rows["num_envs_per_worker"][1:] == ("the machine and the env", "None")
    assert rows["inline_samplers"][1] == "the machine and the env"
    typed = explain("--env=plain", "--num_workers=1", "--num_envs_per_worker=4", "--inline_samplers=0")
    assert typed["num_envs_per_worker"] == ("4", "command line", f"{usual} (the machine and the env)")


def test_keys_that_an_env_adds_for_the_critic_name_their_flag():
    info = EnvInfo(AgentKinds.one(VECTOR, gym.spaces.Discrete(2), 2), 1, teams=(0, 0))
    config = parse_config(["--env=plain", "--centralized_critic=True"], resolve_family)
    complete = plan_run(config, resolve_family("plain"), info).config
    (choice,) = complete.choices["critic_only_keys"]
    assert "--centralized_critic" in choice.layer and choice.value == complete.model.critic_only_keys


def test_the_flags_of_an_env_are_explained(explain):
    @dataclass(frozen=True)
    class Flags:
        size: int = flag(3, "size of the board")

    register_env("sized", lambda: None, flags=Flags, defaults={"gamma": 0.5})
    assert explain("--env=sized", "--size=4")["size"] == ("4", "command line", "3")


def test_the_command_prints_the_table_and_runs_nothing(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.main(["--env=gym_CartPole-v1", "--experiment=a", "--explain"]) == 0
    printed = capfd.readouterr().out
    assert "--max_grad_norm" in printed and "defaults for vectors" in printed
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_is_explained_without_being_played(tmp_path, capfd):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cfg.json").write_text(json.dumps({"env": "plain", "rollout": 16}))
    assert run(EVAL, [f"--train_dir={tmp_path}", "--experiment=a", "--explain"]) == 0
    assert "saved cfg.json" in capfd.readouterr().out
