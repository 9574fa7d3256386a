"""The cfg of scripts that were written for version 2."""

import sys

import gymnasium as gym
import pytest
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args

from sample_factory import register_env
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.train import run_rl
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


@pytest.mark.parametrize("flag", ["--levl=3", "--gamma=3", "--env=old_en"])
def test_bad_input_ends_the_script_with_one_line(argv, flag, capsys):
    with pytest.raises(SystemExit) as ended:
        parser, _ = parse_sf_args([*argv, flag])
        parse_full_cfg(parser, [*argv, flag])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and flag.split("=")[1] in line


def test_a_cfg_of_another_kind_is_refused_with_what_to_write(capsys):
    assert run_rl({"env": "old_env"}) == 2
    assert "it should be the result of parse_full_cfg, or call sample_factory.run" in capsys.readouterr().err


def test_without_a_list_the_arguments_are_those_of_the_process(argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py", *argv])
    parser, _ = parse_sf_args()
    assert parse_full_cfg(parser).experiment == "a"


def test_a_script_trains_and_its_policy_is_played(argv, capsys):
    from sample_factory.enjoy import enjoy

    small = ["--serial_mode=True", "--num_workers=1", "--rollout=8", "--batch_size=64", "--device=cpu"]
    cfg = parse([*argv, *small, "--train_for_env_steps=200"])
    cfg.encoder_mlp_layers = [8]
    assert run_rl(cfg) == 0
    played = parse([*argv, "--no_render", "--max_num_episodes=2"], evaluation=True)
    status, mean = enjoy(played)
    assert status == 0 and 5 < mean < 500
    assert f"reward    {mean:.3f}" in capsys.readouterr().out


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


def test_a_script_in_the_manner_of_godot_rl_trains_and_plays(tmp_path, capsys):
    """Its make_env reads a flag without effect, and it names the folder after it has parsed."""
    from sample_factory.enjoy import enjoy

    def make_env(full_env_name, cfg=None, env_config=None, render_mode=None):
        return None if cfg.batched_sampling else gym.make("CartPole-v1")

    def parse_later(argv, evaluation=False):
        parser, _ = parse_sf_args(argv, evaluation)
        parser.set_defaults(batched_sampling=False, use_record_episode_statistics=True, hidden_size=16)
        cfg = parse_full_cfg(parser, argv)
        cfg.train_dir, cfg.experiment = str(tmp_path), "godot"
        return cfg

    register_env("godot_env", make_env)
    small = ["--serial_mode=True", "--num_workers=1", "--rollout=8", "--batch_size=64", "--device=cpu"]
    cfg = parse_later(["--env=godot_env", *small, "--train_for_env_steps=200", "--pixel_format=HWC"])
    assert run_rl(cfg) == 0
    assert "--pixel_format has no effect: the layout of an image" in capsys.readouterr().err
    status, mean = enjoy(parse_later(["--env=godot_env", "--no_render", "--max_num_episodes=2"], True))
    assert status == 0 and 5 < mean < 500
