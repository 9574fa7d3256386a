"""The cfg of scripts that were written for version 2."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.cfg.arguments import load_from_checkpoint, parse_full_cfg, parse_sf_args
from sample_factory.utils.utils import experiment_dir

from sample_factory import register_env
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.envs import env_utils
from sample_factory.envs.env_registry import global_env_registry, resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.train import run_rl
from sample_factory.version_2 import running
from sample_factory.version_2.running import config_of

FLAGS = ["--env=old_env", "--experiment=a"]


@pytest.fixture
def argv(tmp_path):
    register_env("old_env", lambda full_env_name, cfg=None, env_config=None: gym.make("CartPole-v1"))
    return [*FLAGS, f"--train_dir={tmp_path}"]


def parse(argv, evaluation=False):
    parser, partial = parse_sf_args(argv, evaluation=evaluation)
    assert partial.env == "old_env" and partial.rnn_size == partial["hidden_size"]
    parser.add_argument("--level", default=3, type=int, help="a flag of the script")
    parser.add_argument("--is_hard", default=False, type=lambda text: text == "yes")
    parser.set_defaults(rnn_size=128, num_epochs=2)
    return parse_full_cfg(parser, argv)


def test_the_arguments_and_defaults_of_a_script_are_flags_and_names_of_version_2_are_read(argv):
    cfg = parse([*argv, "--level=7", "--num_batches_per_epoch=2"])
    assert (cfg.level, cfg["level"], "level" in cfg, cfg.rnn_size, cfg.num_epochs) == (7, 7, True, 128, 2)
    assert cfg.num_batches_per_iteration == cfg.num_batches_per_epoch == 2
    assert cfg.cli_args["level"] == 7
    assert parse(argv).level == 3  # again, as in a notebook


def test_what_a_script_changes_later_is_what_runs(argv):
    cfg = parse([*argv, "--level=7"])
    cfg.train_for_env_steps = 1000
    cfg["rnn_size"] = 64
    config = config_of(cfg, "run_rl", evaluation=False)
    assert config.monitoring.train_for_env_steps == 1000
    assert (config.model.hidden_size, config.learning.ppo_epochs, config.family.level) == (64, 2, 7)


def test_an_env_that_is_still_unknown_when_the_run_begins_is_reported_in_one_line(argv, capsys, tmp_path):
    cfg = parse([*argv, "--env=old_env"])
    cfg.env = "old_en"
    assert run_rl(cfg) == 2
    assert "error: unknown env 'old_en'" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_cfg_of_another_kind_is_refused_with_what_to_write(capsys):
    assert run_rl({"env": "old_env"}) == 2
    assert "it should be the result of parse_full_cfg, or call sample_factory.run" in capsys.readouterr().err


def test_without_a_list_the_arguments_are_those_of_the_process(argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py", *argv])
    parser, _ = parse_sf_args()
    assert parse_full_cfg(parser).experiment == "a"


# Flags without an effect here, which make_env functions of version 2 read -> its default values.
DEFAULTS = {
    "batched_sampling": False,
    "pixel_format": "CHW",
    "use_record_episode_statistics": False,
    "episode_counter": False,
    "use_env_info_cache": False,
    "env_gpu_actions": False,
    "env_gpu_observations": True,
    "heartbeat_interval": 20,
}


def test_flags_without_effect_have_the_defaults_of_version_2_or_what_the_script_has_set(argv):
    cfg = parse(argv)
    assert {name: getattr(cfg, name) for name in DEFAULTS} == DEFAULTS
    assert all(name in cfg and cfg[name] == cfg.get(name) for name in RETIRED_FLAGS)
    assert not set(vars(cfg)) & set(RETIRED_FLAGS)

    typed = [*argv, "--env_gpu_observations=False", "--heartbeat_interval=7"]
    parser, partial = parse_sf_args(typed)
    parser.set_defaults(pixel_format="HWC")
    cfg = parse_full_cfg(parser, typed)
    cfg.batched_sampling = True
    made = config_of(cfg, "run_rl", evaluation=False)
    set_here = {"pixel_format": "HWC", "batched_sampling": True}
    given = {"env_gpu_observations": False, "heartbeat_interval": 7}
    assert partial.heartbeat_interval == 7
    assert {name: made.namespace()[name] for name in DEFAULTS} == {**DEFAULTS, **set_here, **given}
    assert set(made.typed) & set(RETIRED_FLAGS) == {"batched_sampling", *given}, "the run says so"


def add_everything(parser):
    """Adds arguments of each kind that argparse has."""
    parser.add_argument("--options", default={"a": 1}, type=json.loads)
    parser.add_argument("--sizes", default="1,2", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--pair", nargs=2, type=float, default=[0.0, 1.0])
    parser.add_argument("--views", nargs="+", choices=["top", "side"], default=["top", "side"])
    parser.add_argument("--tag", action="append")
    parser.add_argument("-v", "--verbosity", action="count", default=0)
    parser.add_argument("--with-dashes", default=None, type=int)
    parser.add_argument("--mode", nargs="?", const="bare", default="none")
    parser.add_argument("--shown", action="store_true")
    parser.add_argument("--sound", dest="sound", action="store_false")
    parser.add_argument("--silent", dest="silent", action="store_true", default=False)
    parser.add_argument("--no_silent", dest="silent", action="store_false")
    parser.add_argument_group("more").add_argument("--flag", type=bool, default=False)


DEFAULT_VALUES = {
    "options": {"a": 1},
    "sizes": [1, 2],
    "pair": [0.0, 1.0],
    "views": ["top", "side"],
    "tag": None,
    "verbosity": 0,
    "with_dashes": None,
    "mode": "none",
    "shown": False,
    "sound": True,
    "silent": False,
    "flag": False,
}
TYPED = """--options={"b":[2]} --sizes=3 --pair 2 3 --views side --tag=x --tag=y -v -v --with-dashes=4 --mode
--shown --sound --silent --no_silent --flag=False"""
TYPED_VALUES = {
    "options": {"b": [2]},
    "sizes": [3],
    "pair": [2.0, 3.0],
    "views": ["side"],
    "tag": ["x", "y"],
    "verbosity": 2,
    "with_dashes": 4,
    "mode": "bare",
    "shown": True,
    "sound": False,
    "silent": False,
    "flag": False,
}


@pytest.mark.parametrize(
    ("typed", "expected"), [("", DEFAULT_VALUES), (TYPED.replace('"', '\\"'), TYPED_VALUES)]
)
def test_arguments_have_the_values_that_argparse_gives_them(argv, typed, expected):
    words = [*argv, *shlex.split(typed)]
    parser, _ = parse_sf_args(words)
    add_everything(parser)
    cfg = parse_full_cfg(parser, words)
    assert {name: cfg[name] for name in expected} == expected

    config = config_of(cfg, "run_rl", evaluation=False)
    config.save()
    seen = []
    register_env("old_env", lambda name, cfg=None, env_config=None: seen.append(vars(cfg)))
    resolve_family("old_env").make(config.namespace(), EnvConfig(0, 0, 0))
    resumed = config_of(cfg, "run_rl", evaluation=False)
    assert resumed.resumed.changed == () and is_subset(expected, seen[0])
    assert is_subset(expected, vars(resumed.namespace()))


def is_subset(part, whole):
    return {name: whole[name] for name in part} == part


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--map=x --gamma=3", "--gamma=3"),
        ("--map=x --batch_size=x", "--batch_size: 'x'"),
        ("--map=x --options={", "--options: invalid loads value: '{'"),
        ("--map=x --views=front", "--views: invalid choice: 'front' (choose from 'top', 'side')"),
        ("--map=x --pair 2", "--pair: expected 2 arguments"),
        ("--map=x --optons=1", "unknown flag --optons=1; did you mean --options?"),
        ("", "the following arguments are required: --map"),
        ("--map=x --env_easy --env_hard", "argument --env_hard: not allowed with argument --env_easy"),
    ],
)
def test_what_a_scripts_parser_refuses_ends_it_with_one_line(argv, typed, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parser, _ = parse_sf_args([*argv, *typed.split()])
        add_everything(parser)
        parser.add_argument("--map", required=True)
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--env_easy", action="store_true")
        group.add_argument("--env_hard", action="store_true")
        assert parse_full_cfg(parser, [*argv, "--map=x", "--env_easy"]).env_easy
        parse_full_cfg(parser, [*argv, *typed.split()])
    [line] = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith("error: ") and message in line


@pytest.mark.parametrize("place", ["default", "set_defaults", "cfg"])
def test_a_value_that_cfg_json_cannot_hold_is_refused_with_what_to_use(argv, capsys, place):
    parser, _ = parse_sf_args(argv)
    if place == "default":
        parser.add_argument("--where", default=Path("a"), type=Path)
    if place == "set_defaults":
        parser.set_defaults(where=Path("a"))
    try:
        cfg = parse_full_cfg(parser, argv)
        cfg.where = Path("a")
        code = run_rl(cfg)
    except SystemExit as ended:
        code = ended.code
    [line] = capsys.readouterr().err.splitlines()
    assert code == 2 and "where = PosixPath('a') cannot be written to cfg.json; use numbers, texts" in line


def test_defaults_that_are_no_flags_and_values_that_a_script_sets_stay_on_the_cfg(argv):
    own = {"environment": {"grid": {"size": 5}, "maps": ["a"]}, "use_wandb": True, "note": None}
    parser, _ = parse_sf_args(argv)
    parser.set_defaults(**own, rnn_size=16)
    cfg = parse_full_cfg(parser, argv)
    assert is_subset(own, vars(cfg)) and cfg.rnn_size == 16
    cfg.environment["maps"].append("b")
    cfg.num_envs = 1
    made = config_of(cfg, "run_rl", evaluation=False)
    cfg_of_env = made.namespace()
    assert (cfg_of_env.environment["maps"], cfg_of_env.num_envs, cfg_of_env.note) == (["a", "b"], 1, None)
    made.save()
    loaded = load_from_checkpoint(cfg)
    assert loaded.environment == {"grid": {"size": 5}, "maps": ["a", "b"]} and loaded.use_wandb


def test_an_experiment_that_defaults_name_is_resumed_and_played(argv, tmp_path):
    def parse_named(evaluation, **defaults):
        parser, _ = parse_sf_args(["--env=old_env"], evaluation=evaluation)
        parser.set_defaults(train_dir=str(tmp_path / "runs"), experiment="named", **defaults)
        return parse_full_cfg(parser, ["--env=old_env"])

    cfg = parse_named(False)
    cfg.gamma = 0.5
    config_of(cfg, "run_rl", evaluation=False).save()
    assert Path(experiment_dir(cfg), "cfg.json").is_file()
    resumed = config_of(parse_named(False), "run_rl", evaluation=False)
    assert resumed.resumed is not None and resumed.learning.gamma == 0.5
    played = config_of(parse_named(True, restart_behavior="overwrite"), "enjoy", evaluation=True)
    assert played.learning.gamma == 0.5 and played.experiment_dir == tmp_path / "runs" / "named"
    again = config_of(parse_named(False, restart_behavior="overwrite"), "run_rl", evaluation=False)
    assert again.resumed is None and again.learning.gamma == 0.99


def test_envs_and_encoders_that_are_registered_after_the_flags_are_parsed_are_used(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_FACTORY", running.ModelFactory())
    argv = ["--env=late_env", f"--train_dir={tmp_path}", "--experiment=late", "--level=4"]
    parser, _ = parse_sf_args(argv)
    parser.add_argument("--level", default=3, type=int)
    parser.set_defaults(rnn_size=32)
    cfg = parse_full_cfg(parser, argv)
    assert (cfg.level, cfg.rnn_size, cfg.encoder_custom) == (4, 32, None)
    config_of(cfg, "run_rl", evaluation=False).save()  # trained before the script had an encoder
    register_env("late_env", lambda name, cfg=None, env_config=None: cfg.level)
    global_model_factory().make_model_encoder_func = lambda cfg, space: None
    made = config_of(cfg, "run_rl", evaluation=False)
    assert (made.model.encoder_custom, made.model.hidden_size, made.family.level) == (running.ENCODER, 32, 4)
    assert resolve_family("late_env").make(made.namespace(), EnvConfig(0, 0, 0)) == 4
    typed = parse_full_cfg(parser, [*argv, "--encoder_custom=vizdoom"])
    assert config_of(typed, "run_rl", evaluation=False).model.encoder_custom == "vizdoom"


@pytest.mark.parametrize("version", [1, 2])
def test_make_env_finds_its_place_in_a_dict_with_attributes(version):
    register = env_utils.register_env if version == 2 else global_env_registry().register_env
    register("placed_env", lambda name, cfg, env_config, render_mode=None: env_config)
    place = resolve_family("placed_env").make(SimpleNamespace(), EnvConfig(3, 1, 7))
    assert "worker_index" in place and "safe_init" not in place and place.get("safe_init", False) is False
    assert (place["worker_index"], place.vector_index, {**place}["env_id"]) == (3, 1, 7)


@pytest.mark.parametrize("part", ["actor_critic", "model_core", "model_decoder", "decoder"])
def test_a_part_that_is_given_to_the_factory_is_refused_with_what_to_write(part):
    name = part.removeprefix("model_")
    message = rf"register_{name}\(name, factory\), and --{name}_custom=name"
    with pytest.raises(ConfigError, match=message):
        setattr(global_model_factory(), f"make_{part}_func", lambda *arguments: None)
    with pytest.raises(ConfigError, match=message):
        getattr(global_model_factory(), f"register_{part}_factory")(None)


def test_an_own_encoder_may_have_names_of_its_own_for_its_kinds(argv):
    parser, _ = parse_sf_args(argv)
    parser.set_defaults(encoder_subtype="mlp_quads", encoder_custom="own")
    assert parse_full_cfg(parser, argv).encoder_subtype == "mlp_quads"
    with pytest.raises(ConfigError, match="encoder_subtype=mlp_quads: choose one of"):
        parse_config([*argv, "--encoder_custom=vizdoom", "--encoder_subtype=mlp_quads"], resolve_family)


def test_the_cfg_has_lists_its_command_line_and_the_commit(argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*argv, "--encoder_mlp_layers", "8", "8", "--experiment=two words"]
    parser, partial = parse_sf_args(words)
    cfg = parse_full_cfg(parser, words)
    assert cfg.encoder_mlp_layers == partial.encoder_mlp_layers == [8, 8]
    assert isinstance(cfg, argparse.Namespace) and shlex.split(cfg.command_line) == words
    assert (cfg.git_hash, cfg.git_repo_name) == ("unknown", "unknown")
    monkeypatch.chdir(Path(__file__).parent)
    assert len(parse_full_cfg(parser, words).git_hash) in (40, len("unknown"))


def test_an_experiment_with_the_default_name_of_another_env_does_not_stop_the_parsing(argv, tmp_path):
    argv = ["--env=old_env", f"--train_dir={tmp_path}"]
    cfg = parse_full_cfg(parse_sf_args(argv)[0], argv)
    register_env("other_env", lambda name, cfg=None, env_config=None: None)
    other = parse_full_cfg(parse_sf_args(argv)[0], argv)
    other.env = "other_env"
    config_of(other, "run_rl", evaluation=False).save()
    cfg = parse_full_cfg(parse_sf_args(argv)[0], argv)
    cfg.experiment = "mine"
    assert config_of(cfg, "run_rl", evaluation=False).resumed is None


def test_version_1s_parser_functions_may_give_arguments_defaults_of_any_type():
    def add(env, parser):
        add_everything(parser)

    def override(env, parser):
        parser.set_defaults(sizes="7,8", options={"c": 3}, gamma=0.5)

    global_env_registry().register_env("v1_any_", lambda name, cfg=None: cfg, add, override)
    cfg = parse_config(["--env=v1_any_x", "--tag=z"], resolve_family).namespace()
    assert (cfg.sizes, cfg.options, cfg.gamma, cfg.tag) == ([7, 8], {"c": 3}, 0.5, ["z"])
