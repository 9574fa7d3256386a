"""What other people have written into an experiment is text in its model card, no Markdown and no command."""

import ast
import json
import re
import shlex

import gymnasium as gym
import numpy as np
import pytest

from sample_factory import register_env
from sample_factory.__main__ import declaration
from sample_factory.config.command import PLAYS
from sample_factory.config.flags import section_fields
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.policy_choice import PolicyChoice, chosen_policies, find_checkpoint
from sample_factory.hub import PushFlags
from sample_factory.hub.model_card import LEFT_OUT, model_card, results_section, training_flags
from sample_factory.launch.plan import with_defaults_for
from sample_factory.spaces.agent_kinds import AgentKinds

ENV = "gym_CartPole-v1"
HOSTILE = "a\n```\n# Heading\n[click](http://x) <img src=x> | b `touch x` $(touch x)"
LATEST = "checkpoint_p0/checkpoint_000000009_900.pth"
BEST = "checkpoint_p0/best_000000005_500_reward_1.000.pth"
MILESTONE = "checkpoint_000000003_300.pth.milestone"
STATISTIC = {"mean": 1.0, "std": 0.0, "low": 1.0, "high": 1.0}
VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
PICTURE = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
WIDE = gym.spaces.Box(-2, 2, (2,), np.float32)


def results(**more):
    evaluation = {
        "num_episodes": 3,
        "policies": [{"policy_index": 0}],
        "statistics": {"reward": STATISTIC},
        **more,
    }
    return {"deterministic": True, "checkpoints": ["a.pth"], "evaluations": [evaluation]}


@pytest.fixture
def card_of(tmp_path):
    """Returns a function: flags in cfg.json, results -> the card of an experiment of another account."""

    def make(flags, evaluation=None, pushed=(), checkpoint="checkpoint_p0/checkpoint_000000001_4.pth"):
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        (folder / "cfg.json").write_text(json.dumps({"env": ENV, "command_line": "", **flags}))
        argv = ["--experiment=theirs", f"--train_dir={tmp_path}", "--hf_repository=me/repo", *pushed]
        config = parse_config(argv, resolve_family, PLAYS._replace(sections={"hub": PushFlags}))
        return model_card(config, resolve_family(ENV), folder / checkpoint, evaluation, has_video=False)

    return make


def test_texts_in_the_flags_of_a_stranger_are_one_quoted_line_or_left_out(card_of):
    fences = card_of({}).count("```")
    for section in TRAINING_SECTIONS.values():
        for field, kind in section_fields(section):
            is_free = not field.metadata["choices"] and not field.metadata["names_code"]
            if (
                kind.scalar is not str
                or not is_free
                or field.name in (*OWN_FOLDER, "env", "env_kwargs", "eval_flags")
            ):
                continue
            for text in (HOSTILE, "a\r```", "a```", "a\u2028```\u2028b", "$(touch x)"):
                try:
                    card = card_of({field.name: [text] if kind.is_list else text})
                except ValueError:  # the flag does not accept it
                    continue
                lines = card.splitlines()
                assert sum(line.strip().startswith("```") for line in lines) == fences, field.name
                assert "# Heading" not in lines
                for line in lines:
                    assert "$(touch x)" not in line or "'" in line.partition("$(")[0]


@pytest.mark.parametrize(
    ("flags", "file"),
    [
        ([], LATEST),
        (["--checkpoint=best", "--eval_deterministic=True"], BEST),
        (["--load_checkpoint_kind=best"], BEST),
        (["--policy_index=1"], "checkpoint_p1/checkpoint_000000007_700.pth"),
        (["--policy_index=1", "--checkpoint=milestone:3"], f"checkpoint_p1/milestones/{MILESTONE}"),
        (["--checkpoint={folder}/checkpoint_p0/kept/a_2_200.pth"], "checkpoint_p0/kept/a_2_200.pth"),
    ],
)
def test_the_commands_of_the_card_play_what_was_pushed_and_train_further(
    card_of, tmp_path, monkeypatch, flags, file
):
    folder = tmp_path / "theirs"
    for name in (LATEST, "checkpoint_p1/checkpoint_000000007_700.pth", file):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    card = card_of({"num_policies": 2}, None, [flag.format(folder=folder) for flag in flags], file)
    (tmp_path / "train_dir").mkdir()
    repository = folder.rename(tmp_path / "train_dir/repo")  # where load_from_hub puts it
    monkeypatch.chdir(tmp_path)
    is_deterministic = "--eval_deterministic=True" in flags
    for module in ("enjoy", "eval"):
        (line,) = re.findall(rf"python -m sample_factory[. ]{module} (.*)", card)
        config = parse_config(
            [*shlex.split(line), "--train_dir=train_dir"], resolve_family, declaration(module)
        )
        assert find_checkpoint(config, chosen_policies(config)[0]).resolve() == repository / file
        assert config.evaluation.eval_deterministic == is_deterministic
    (call,) = re.findall(r"load_policy\(.*\)", card)
    keywords = {word.arg: ast.literal_eval(word.value) for word in ast.parse(call, mode="eval").body.keywords}
    assert keywords.pop("deterministic", False) == is_deterministic
    named = {"policy_index": 0, "checkpoint": "latest", **keywords}
    choice = PolicyChoice(named.pop("policy_index"), named.pop("checkpoint"))
    assert named == {}
    assert find_checkpoint(config, choice).resolve() == repository / file
    (limit,) = re.findall(r"--train_for_env_steps=(\d+)", card)
    assert int(limit) == (1400 if "--policy_index=1" in flags else 1800)


def test_the_commands_of_the_card_take_actions_as_in_the_kept_results(card_of):
    assert "--eval_deterministic=True" in card_of({}, results())
    is_random = {**results(), "deterministic": False}
    assert "deterministic=" not in card_of({}, is_random, ["--eval_deterministic=True"])


def test_an_objective_that_is_not_finite_is_no_mean_reward(card_of):
    objective = {**STATISTIC, "mean": None}
    card = card_of({}, results(statistics={"true_objective": objective, "reward": STATISTIC}))
    assert "model-index" not in card and "| reward |" in card


@pytest.mark.parametrize(
    "more",
    [
        {"statistics": {HOSTILE: STATISTIC}},
        {"policies": [{"policy_index": HOSTILE}]},
        {"policies": [{"policy_index": HOSTILE}, {"policy_index": 1}]},
    ],
)
def test_names_in_results_of_a_stranger_are_plain_text(card_of, more):
    card = card_of({}, results(**more))
    plain = card_of({}, results())
    assert card.count("```") == plain.count("```") and len(card.splitlines()) == len(plain.splitlines())
    assert not re.search(r"<img|\[click\]|`touch", card) and "a??" in card
    assert "<img" not in results_section({**results(), "checkpoints": [HOSTILE]})


def test_the_card_names_the_versions_that_the_run_was_made_with(card_of):
    assert "of Sample Factory 3, for" in card_of({})
    made_with = {"sample_factory": "3.0.0", "commit": "0123456789ab", "torch": "2.13.0"}
    assert "of Sample Factory 3.0.0 (commit 0123456789ab), torch 2.13.0, for" in card_of(
        {"versions": made_with}
    )
    assert "<img" not in card_of({"versions": {"torch": HOSTILE}})
    assert "of Sample Factory 3, for" in card_of({"versions": "3"})


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["--use_rnn=True", "--learning_rate=1e-4", "--ppo_epochs=1"],
        ["--async_rl=True", "--num_workers=2", "--scale_actions=False", "--encoder_mlp_layers", "512", "512"],
        ["--batch_size=512", "--rnn_type=lstm", "--gamma=0.9"],
        ["--algo=VMPO", "--gae_lambda=0.95"],
        ["--algo=IMPALA", "--optimizer=adam", "--reward_clip=1000", "--lr_schedule=constant"],
        ["--algo=of_a_script:Mine", "--gae_lambda=0.9"],
        ["--encoder_custom=None", "--max_grad_norm=4"],
    ],
)
@pytest.mark.parametrize("env", ["plain_x", "own_defaults_x", "mujoco_hopper", "doom_basic"])
@pytest.mark.parametrize("observed", [VECTOR, PICTURE, "simulator"])
def test_the_printed_flags_train_with_all_values_of_the_experiment_whatever_the_defaults(
    tmp_path, env, observed, typed
):
    defaults = {"ppo_epochs": 2, "encoder_custom": "of_a_script:Encoder", "reward_clip": 5.0}
    register_env("plain_", lambda name: None)
    register_env("own_defaults_", lambda name: None, defaults=defaults)
    space = gym.spaces.Dict({"policy": VECTOR if observed == "simulator" else observed, "critic": VECTOR})
    kinds = AgentKinds.one(space, WIDE, 16 if observed == "simulator" else 1)

    def trained(argv):
        config = parse_config([f"--env={env}", f"--train_dir={tmp_path}", *argv], resolve_family)
        return with_defaults_for(config, kinds, observed == "simulator")[0].flat()

    values = trained(typed)
    lines = training_flags(json.loads(json.dumps(values)), resolve_family(env))
    again = trained([word for line in lines for word in shlex.split(line)])
    assert {name: value for name, value in again.items() if values[name] != value} == {}
    assert not {line[2:].partition("=")[0] for line in lines} & {*LEFT_OUT}
