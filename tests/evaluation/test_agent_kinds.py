"""Agents that differ in their spaces are each played by a policy of their kind."""

import json

import pytest

from sample_factory.__main__ import command
from sample_factory.checkpoints.store import Checkpoints, read_checkpoint
from sample_factory.config.command import PLAYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import main as enjoy
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.evaluation.policy_choice import choices_of_agents
from tests.mixed import MixedCounting


@pytest.fixture(autouse=True)
def mixed():
    register_env("mixed_", lambda *args, **kwargs: MixedCounting())


def chosen(tmp_path, *flags):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cfg.json").write_text("{}")
    argv = ["--env=mixed_x", f"--train_dir={tmp_path}", "--experiment=a", *flags]
    config = parse_config(argv, resolve_family, PLAYS)
    return [choice.policy_index for choice in choices_of_agents(config, adapt(MixedCounting()).kinds)]


@pytest.mark.parametrize(
    ("flags", "policies"),
    [
        ([], [0, 1, 0]),
        (["--policy_index", "2"], [2, 3, 2]),
        (["--policy_index", "3"], [2, 3, 2]),
        (["--policy_index", "0", "3", "2"], [0, 3, 2]),
    ],
)
def test_every_agent_is_played_by_a_policy_of_its_kind(tmp_path, flags, policies):
    assert chosen(tmp_path, *flags) == policies


def test_a_policy_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="policy 2 has other spaces than agent 1, which is of kind 1 of 2"):
        chosen(tmp_path, "--policy_index", "0", "2", "0")


def test_one_file_is_refused_since_it_has_one_policy(saved_experiment, tmp_path, capsys):
    identity = saved_experiment("mixed_x", "--encoder_type=mlp", "--hidden_size=8")
    files = [tmp_path / "tiny" / f"checkpoint_p{policy}" / "checkpoint_000000001_4.pth" for policy in (0, 1)]
    one = [*identity, "--policy_index=1", f"--checkpoint={files[1]}"]
    assert command("eval")([*one, *QUICK]) == 2
    assert enjoy([*one, "--no_render", "--max_num_episodes=3"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert sum("a file has one policy, and the 2 kinds of agents" in line for line in errors) == 2
    of_agents = ["--checkpoint", *map(str, [files[0], files[1], files[0]])]
    assert enjoy([*identity, *of_agents, "--no_render", "--max_num_episodes=3"]) == 0


QUICK = ["--serial_mode=True", "--num_workers=1", "--eval_episodes=3", "--seed=1"]


@pytest.mark.parametrize(
    ("policies", "printed"), [(["0", "1"], "policy 0, latest: "), (["1"], "policy 1, latest: ")]
)
def test_policies_that_play_together_are_measured_once_under_the_first_that_was_asked_for(
    saved_experiment, tmp_path, capsys, policies, printed
):
    identity = saved_experiment("mixed_x", "--encoder_type=mlp", "--hidden_size=8")
    folder = tmp_path / "tiny"
    state = read_checkpoint(folder / "checkpoint_p1" / "checkpoint_000000001_4.pth")
    Checkpoints(folder, 1, keep=1).save({**state, "train_step": 7}, 7, 4)
    file = tmp_path / "out.json"
    assert command("eval")([*identity, *QUICK, "--policy_index", *policies, f"--json={file}"]) == 0
    out = capsys.readouterr().out
    assert out.count("latest: 3 episodes") == 1 and f"{printed}3 episodes" in out
    (found,) = json.loads(file.read_text())["evaluations"]
    assert [policy["policy_index"] for policy in found["policies"]] == [0, 1, 0]
    assert found["versions"] == [1, 7, 1]
    shown = ["--no_render", "--max_num_episodes=3", "--policy_index", *policies[-1:], f"--json={file}"]
    assert enjoy([*identity, *shown]) == 0
    out = capsys.readouterr().out
    assert "policy 0, latest (agents 0, 2): " in out and "policy 1, latest (agent 1): " in out
    (found,) = json.loads(file.read_text())["evaluations"]
    assert found["versions"] == [1, 7, 1]


def test_what_failed_is_the_first_policy_that_played_in_no_evaluation(saved_experiment, tmp_path, capsys):
    identity = saved_experiment("mixed_x", "--encoder_type=mlp", "--hidden_size=8")
    for policy in (2, 3):
        damaged = tmp_path / "tiny" / f"checkpoint_p{policy}" / "checkpoint_000000001_4.pth"
        damaged.parent.mkdir()
        damaged.write_text("no checkpoint")
    assert command("eval")([*identity, *QUICK, "--policy_index", "0", "1", "2", "3"]) == 1
    assert "INCOMPLETE: 2 of 4 checkpoints; policy 2, latest failed" in capsys.readouterr().out
