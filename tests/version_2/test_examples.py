"""What scripts take from version 2's examples, the package `sf_examples`, is built in."""

import functools
import sys

import pytest
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sf_examples.vizdoom.doom.doom_model import make_vizdoom_encoder
from sf_examples.vizdoom.doom.doom_params import add_doom_env_args, doom_override_defaults
from sf_examples.vizdoom.doom.doom_utils import DOOM_ENVS, make_doom_env_from_spec
from sf_examples.vizdoom.train_vizdoom import parse_vizdoom_cfg, register_vizdoom_components

from sample_factory.enjoy import enjoy
from sample_factory.envs.env_registry import is_found_by_all_commands, resolve_family
from sample_factory.train import run_rl
from sample_factory.version_2 import running

ENV = "doom_health_gathering_supreme"


def parse(argv, evaluation=False):
    parser, _ = parse_sf_args(argv=argv, evaluation=evaluation)
    add_doom_env_args(parser)
    doom_override_defaults(parser)
    return parse_full_cfg(parser, argv)


def test_the_synonym_cuda_of_a_device_reaches_a_script_as_gpu():
    _, cfg = parse_sf_args(["--env=doom_basic", "--experiment=x", "--device=cuda"])
    assert cfg.device == "gpu"


@pytest.fixture
def components(monkeypatch):
    """Registers envs and encoder as the course of Hugging Face does."""
    monkeypatch.setattr(running, "_FACTORY", running.ModelFactory())
    for spec in DOOM_ENVS:
        register_env(spec.name, functools.partial(make_doom_env_from_spec, spec))
    global_model_factory().register_encoder_factory(make_vizdoom_encoder)


def test_the_courses_agent_trains_is_filmed_and_ends_a_script_with_code_0(components, tmp_path):
    pytest.importorskip("vizdoom")
    place = ["--env=doom_basic", f"--train_dir={tmp_path}", "--num_workers=1"]
    small = ["--num_envs_per_worker=2", "--train_for_env_steps=256", "--rollout=8", "--batch_size=64"]
    assert run_rl(parse([*place, *small, "--rnn_size=16", "--device=cpu", "--serial_mode=True"])) == 0
    filmed = [*place, "--save_video", "--no_render", "--max_num_episodes=1", "--max_num_frames=100000"]
    played = enjoy(parse(filmed, evaluation=True))
    status, reward = played
    assert status == 0 and reward == played.reward == played[1] and len(played) == 2
    assert (tmp_path / "default_experiment" / "replay.mp4").stat().st_size > 0
    with pytest.raises(SystemExit) as ended:
        sys.exit(played)
    assert ended.value.code == 0 and isinstance(ended.value.code, int)


def test_registered_doom_envs_stay_built_in(components):
    assert is_found_by_all_commands(ENV)
    cfg = parse([f"--env={ENV}"])
    assert (cfg.encoder_custom, cfg.env_frameskip, cfg.res_w) == ("vizdoom", 4, 128)
    assert resolve_family(ENV).make_env.__module__ == "sample_factory.families.doom.make_doom_env"


def test_the_encoder_of_the_examples_is_used_for_an_env_of_ones_own(components):
    register_env("tiny_doom", functools.partial(make_doom_env_from_spec, DOOM_ENVS[0]))
    assert parse(["--env=tiny_doom"]).encoder_custom == "vizdoom"


def test_parsing_and_registering_by_the_training_script(components):
    register_vizdoom_components()
    assert parse_vizdoom_cfg([f"--env={ENV}", "--res_w=64"]).res_w == 64
