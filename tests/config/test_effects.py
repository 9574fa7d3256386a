"""Typed flags without effect are reported in one line, for every command, by the declarations of flags and
commands alone."""

import dataclasses
import json

import pytest

import sample_factory
from sample_factory.config.command import EXTENDED, TRAIN
from sample_factory.config.effects import report_without_effect, without_effect
from sample_factory.config.flags import AtLeast, ConfigError, Not, flag, section_fields
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import TRAINING_SECTIONS
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.evaluation.evaluate import EVAL
from sample_factory.evaluation.load_policy import LOAD_POLICY
from sample_factory.families.doom import PLAY_DOOM
from tests.config.declared_commands import DECLARED

TAKE_FLAGS = {command.name: command for command in (*DECLARED, LOAD_POLICY) if command.reads is not None}


def parse(*argv, command=TRAIN, env="gym_CartPole-v1", **options):
    command = command._replace(experiment="resumed")  # so that no experiment is needed
    return parse_config([f"--env={env}", *argv], resolve_family, command, **options)


def warnings(caplog, *argv, **options):
    """Returns the lines that parsing these flags logs."""
    caplog.clear()
    parse(*argv, **options)
    return caplog.messages


@pytest.mark.parametrize(
    ("argv", "flags", "reason"),
    [
        ("--with_vtrace=True --gae_lambda=0.5", "--gae_lambda", "needed: --with_vtrace=False"),
        ("--use_rnn=False --rnn_type=lstm --gtrxl_heads=2", "--rnn_type", "needed: --use_rnn=True"),
        ("--core_custom=a:B --use_rnn=False", "--use_rnn", "needed: no --core_custom"),
        ("--node_workers=2", "--node_workers", "needed: --num_nodes other than 1"),
        (
            "--with_pbt=True --num_policies=2 --train_for_env_steps=1000",
            "--with_pbt",
            "needed: --train_for_env_steps of at least 20,000,000 (--pbt_start_mutation)",
        ),
        (
            "--eval_every_env_steps=5000 --train_for_env_steps=1000",
            "--eval_every_env_steps",
            "at least 5,000",
        ),
        ("--pixel_format=HWC", "--pixel_format", "the layout of an image is derived from"),
        ("--fps=3", "--fps", "in train, except for an env that reads its cfg"),
    ],
)
def test_flags_whose_condition_is_not_met_are_reported_in_one_line(caplog, argv, flags, reason):
    lines = [line for line in warnings(caplog, *argv.split()) if line.startswith(f"{flags} ha")]
    assert len(lines) == 1 and reason in lines[0]


def test_a_flag_with_its_condition_and_one_with_its_default_value_are_not_reported(caplog):
    for argv in (
        ["--algo=IMPALA", "--rmsprop_eps=0.1", "--vtrace_rho=2"],
        ["--algo=my_module:Mine", "--ppo_clip_value=0.5", "--vmpo_policy_kl=0.1"],
        ["--use_rnn=True", "--rnn_type=gtrxl", "--gtrxl_heads=2", "--hidden_size=64"],
        ["--actor_critic_custom=a:B", "--rnn_type=lstm", "--use_rnn=False", "--decoder_mlp_layers=3"],
        ["--with_pbt=True", "--num_policies=2", "--train_for_env_steps=20_000_000"],
        ["--eval_every_env_steps=9", "--save_best_metric=eval_reward", "--train_for_env_steps=100_000"],
        ["--with_wandb=False", "--wandb_project=sample_factory", "--num_nodes=1", "--weights_sync=every"],
    ):
        assert warnings(caplog, *argv) == []


def test_flags_in_a_file_are_not_reported(caplog, tmp_path):
    """A recipe of PPO can be tried with another algorithm."""
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"ppo_clip_ratio": 0.2, "fps": 3}))
    assert warnings(caplog, "--algo=IMPALA", f"--cfg={file}") == []


def test_a_condition_that_depends_on_the_env_is_checked_once_the_env_is_known(caplog):
    argv = ["--env_framestack=4", "--initial_stddev=2", "--adaptive_stddev=False", "--rnn_type=lstm"]
    assert warnings(caplog, *argv) == []
    config = parse(*argv)
    pictures = {"observations": ["image"], "actions": ["continuous"], "agents": ["one"]}
    assert without_effect(config, pictures) == []
    vectors = {"observations": ["vector"], "actions": ["discrete"], "agents": ["one"]}
    assert without_effect(config, vectors) == [
        "--env_framestack has no effect; needed: image observations",
        "--initial_stddev, --adaptive_stddev have no effect; needed: continuous actions",
    ]


def test_functions_of_python_follow_the_same_rule(tmp_path, caplog):
    parse(f"--train_dir={tmp_path}", "--experiment=a").save()
    with pytest.raises(
        ConfigError, match="^--max_num_episodes=3 has no effect in eval: write --eval_episodes"
    ):
        sample_factory.evaluate("a", tmp_path, max_num_episodes=3)
    with pytest.raises(ConfigError, match="checkpoint"):  # there is none
        sample_factory.load_policy("a", tmp_path, batch_size=64, levels=["length=1"])
    assert caplog.messages == [
        "--batch_size, --levels have no effect in load_policy, except for an env that reads its cfg"
    ]


def test_flags_of_an_env_may_depend_on_other_flags(caplog, monkeypatch):
    from sample_factory.envs import env_registry

    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))

    @dataclasses.dataclass(frozen=True)
    class Flags:
        wind: bool = flag(False, "whether there is wind")
        wind_force: float = flag(1.0, "force of the wind", only_with={"wind": (True,)})

    register_env("windy", lambda *arguments: None, Flags)
    assert warnings(caplog, "--wind=True", "--wind_force=2", env="windy") == []
    (line,) = warnings(caplog, "--wind_force=2", env="windy", command=EVAL)
    assert line == "--wind_force has no effect; needed: --wind=True"
    assert warnings(caplog, "--num_bots=3", "--timelimit=1", env="doom_duel") == []
    (line,) = warnings(caplog, "--num_bots=3", "--timelimit=1", env="doom_basic")
    assert line.startswith("--num_bots, --timelimit have no effect; needed: --env other than doom_basic")


def test_flags_that_each_level_sets_and_levels_where_a_human_plays_are_named_in_a_line(caplog):
    levels = "--doom_levels=basic.wad"
    assert warnings(caplog, "--doom_skill=2", levels, env="doom_basic") == []
    (line,) = warnings(caplog, "--doom_wad=a.wad", "--doom_map=map02", levels, env="doom_basic")
    assert line == ("--doom_wad, --doom_map have no effect; needed: no --doom_levels")
    for of_levels in (("doom_map=map01,doom_skill=2", "doom_skill=3"), ("doom_skill=3", "doom_map=map01")):
        lines = warnings(caplog, "--doom_skill=2", "--levels", *of_levels, env="doom_basic")
        line = "--doom_skill has no effect; needed: --levels that leave it out"
        assert lines == ([line] if "doom_skill=2" in of_levels[0] else [])
    (line,) = warnings(caplog, "--levels=doom_skill=2", env="doom_basic", command=PLAY_DOOM)
    assert line.startswith("--levels has no effect in play_doom")
    for typed in (levels, "--num_agents=2"):
        with pytest.raises(ConfigError, match=f"^{typed}.* has no effect in play_doom: "):
            parse(typed, env="doom_basic", command=PLAY_DOOM)


def another_value(field, kind):
    """Returns a value of the type of a flag that is not its default."""
    if field.metadata["choices"]:
        return next(value for value in field.metadata["choices"] if value != field.default)
    if kind.is_list:
        return (kind.scalar(7),)
    if kind.scalar is bool:
        return not field.default
    return "other" if kind.scalar is str else (field.default or 0) + 7


def with_changed(config, names):
    """Returns a configuration as if these flags had been typed with other values than their defaults."""
    typed, sections = {}, {}
    for section, kinds in TRAINING_SECTIONS.items():
        values = {field.name: another_value(field, kind) for field, kind in section_fields(kinds)}
        values = {name: value for name, value in values.items() if name in names}
        sections[section] = dataclasses.replace(getattr(config, section), **values)
        typed |= values
    return dataclasses.replace(config, typed=typed, **sections)


@pytest.mark.parametrize("name", TAKE_FLAGS)
def test_every_flag_that_a_command_does_not_read_is_named_by_it(caplog, name):
    """Every command x every flag of the shared sections, from the declarations."""
    command = TAKE_FLAGS[name]
    config = dataclasses.replace(parse(command=command._replace(reads=None)), command=command)
    flags = {
        f.name: section for section, kinds in TRAINING_SECTIONS.items() for f, _ in section_fields(kinds)
    }
    unread = {flag for flag, section in flags.items() if not command.uses(flag, section)}
    assert unread >= command.instead.keys() & flags.keys()
    caplog.clear()
    report_without_effect(with_changed(config, unread - command.instead.keys()))
    (line,) = caplog.messages or [""]
    assert set(line.split(" ha")[0].split(", ")) - {""} == {
        f"--{flag}" for flag in unread - command.instead.keys()
    }
    for replaced in command.instead.keys() & flags.keys():
        with pytest.raises(ConfigError) as refused:
            report_without_effect(with_changed(config, {replaced}))
        assert str(refused.value).startswith(f"--{replaced}=")
        assert str(refused.value).endswith(f" has no effect in {command.name}: {command.instead[replaced]}")


def test_ends_that_only_count_in_training_and_in_recorded_games_are_read_by_these_only():
    readers = {name for name, command in TAKE_FLAGS.items() if command.uses("env_both_ends", "env")}
    assert {"train", "record"} <= readers and not readers & {"eval", "enjoy", "match"}


def test_every_flag_that_needs_others_says_so_in_one_line_and_is_silent_with_them(caplog):
    config = dataclasses.replace(parse(command=TRAIN._replace(reads=None)), command=TRAIN)
    fields = {f.name: f for kinds in TRAINING_SECTIONS.values() for f, _ in section_fields(kinds)}
    for name, field in fields.items():
        given = with_changed(config, {name})
        lines = without_effect(given)
        assert len(lines) <= 1
        for line in lines:
            (needed, *_) = field.metadata["only_with"]
            assert line.startswith(f"--{name} has no effect; needed: ")
            assert any(f"--{other}" in line.partition("; needed: ")[2] for other in needed)


def test_declarations_name_flags_sections_and_values_that_exist():
    fields = {
        field.name: field for section in TRAINING_SECTIONS.values() for field, _ in section_fields(section)
    }
    facts = {"observations": ("image", "vector"), "actions": ("continuous", "discrete")}
    facts["agents"] = ("several",)
    for field in fields.values():
        for needed in field.metadata["only_with"]:
            for other, values in needed.items():
                if other in facts:
                    assert set(values) <= set(facts[other])
                    continue
                known = fields[other].metadata["choices"]
                assert not known or set(values) <= set(known)
                assert isinstance(values, (tuple, Not))
                assert not isinstance(values, AtLeast) or set(values) <= fields.keys()
    for command in TAKE_FLAGS.values():
        assert command.reads <= {*fields, EXTENDED}, command.name
