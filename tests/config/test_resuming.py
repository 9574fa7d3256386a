"""Starts that resume an experiment: with another env, and with other flags."""

import json

import pytest

from sample_factory.config.config import Change
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.trust import signed
from sample_factory.envs.env_registry import resolve_family

ENV = "--env=gym_CartPole-v1"


@pytest.fixture
def parse(tmp_path):
    """Returns a function that parses a start of an experiment that was saved with some flags."""
    place = [f"--train_dir={tmp_path}", "--experiment=basic"]

    def parse(*flags):
        return parse_config([*place, *flags], resolve_family)

    config = parse(ENV, "--batch_size=512", "--encoder_mlp_layers", "16", "16")
    config.experiment_dir.mkdir()
    config.save()
    return parse


def test_another_env_is_refused_with_what_to_do(parse, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"env": "gym_Acrobot-v1"}))
    advice = "was given: .* Leave --env out, or choose another --experiment; --transfer_from=basic"
    with pytest.raises(ConfigError, match=f"basic was trained on gym_CartPole-v1, and --env=.* {advice}"):
        parse("--env=gym_Acrobot-v1")
    with pytest.raises(ConfigError, match="and env=gym_Acrobot-v1 in --cfg=.*recipe.json was given"):
        parse(f"--cfg={recipe}")
    assert parse(ENV, f"--cfg={recipe}").env_name == "gym_CartPole-v1"


@pytest.mark.parametrize("behavior", ["restart", "overwrite"])
def test_an_experiment_that_is_not_resumed_may_have_another_env(parse, behavior):
    config = parse("--env=gym_Acrobot-v1", f"--restart_behavior={behavior}")
    assert config.env_name == "gym_Acrobot-v1" and config.resumed is None


def test_without_an_env_that_of_the_experiment_is_resumed(parse):
    assert parse().env_name == "gym_CartPole-v1"


def test_the_flags_that_were_typed_and_differ_are_the_changes(parse):
    same = ["--batch_size=512", "--encoder_mlp_layers", "16", "16", "--restart_behavior=resume"]
    assert parse(ENV, *same).resumed.changed == ()
    [layers] = parse("--encoder_mlp_layers", "32").resumed.changed
    assert str(layers) == "encoder_mlp_layers 16 16 -> 32"
    [batch_size] = parse("--batch_size=1_024").resumed.changed
    assert batch_size == Change("batch_size", 512, 1024)


def test_flags_of_a_file_that_the_saved_ones_override_are_listed(parse, tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps({"batch_size": 2048, "seed": 3}))
    resumed = parse(f"--cfg={tmp_path / 'recipe.json'}", "--seed=3").resumed
    assert resumed.ignored == (Change("batch_size", 512, 2048),)
    assert resumed.changed == (Change("seed", None, 3),)


def test_saved_values_of_flags_that_are_not_resumed_are_not_read(parse, tmp_path):
    path = tmp_path / "basic" / "cfg.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sampler_only": "from another version"}))
    assert parse("--sampler_only=True").resumed.changed == ()


@pytest.mark.parametrize("name", ["cfg.json", "copied.json"])
def test_the_saved_flags_of_another_run_say_neither_how_to_start_nor_where_to_log(parse, tmp_path, name):
    source = parse()
    once = {"restart_behavior": "overwrite", "sampler_only": True, "benchmark": True}
    saved = {**source.flat(), **once, "figures_file": str(tmp_path / "figures.jsonl")}
    saved |= {"wandb_unique_id": "basic_1", "older_flag": 1, "cli_args": {}}
    (tmp_path / name).write_text(json.dumps(signed(saved)))
    new = parse(f"--cfg={tmp_path / name}", "--experiment=new")
    assert not new.is_foreign and new.learning.batch_size == 512
    assert all(new.flat()[flag] == source.flat()[flag] for flag in once)
    assert new.monitoring.figures_file is None and new.unknown == {"older_flag": 1}


def test_a_recipe_may_say_how_to_start(parse, tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps({"env": "gym_CartPole-v1", "benchmark": True}))
    assert parse(f"--cfg={tmp_path / 'recipe.json'}", "--experiment=new").sampling.benchmark


def test_the_saved_flags_of_an_own_run_name_its_folder(parse, tmp_path):
    path = tmp_path / "basic" / "cfg.json"
    assert parse_config([f"--cfg={path}"], resolve_family).experiment_dir == path.parent


def test_a_curve_keeps_its_unit(parse):
    assert parse("--summaries_use_frameskip=True").resumed.changed == ()
    assert len(parse("--env_frameskip=3").resumed.changed) == 1
    with pytest.raises(ConfigError, match="summaries_use_frameskip=False: .* begun with True"):
        parse("--summaries_use_frameskip=False")
    in_steps = ["--experiment=in_steps", ENV, "--summaries_use_frameskip=False", "--env_frameskip=2"]
    config = parse(*in_steps)
    config.experiment_dir.mkdir()
    config.save()
    assert parse(*in_steps).resumed.changed == ()
    with pytest.raises(ConfigError, match="env_frameskip=4: .* begun with 2"):
        parse(*in_steps[:-1], "--env_frameskip=4")
