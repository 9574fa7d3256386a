import json
from dataclasses import dataclass

import pytest

from sample_factory.config.command import PLAYS
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_family import EnvFamily


@dataclass(frozen=True)
class ToyFlags:
    toy_size: int = flag(10, "how large the toy is", aliases=("toy_extent",), at_least=1)


def resolve(env):
    return EnvFamily(env, lambda name: None, ToyFlags, {"gamma": 0.5, "toy_size": 20, "hidden_size": 64})


def parse(tmp_path, *argv, **kwargs):
    return parse_config(["--env=toy_a", f"--train_dir={tmp_path}", *argv], resolve, **kwargs)


def test_later_layers_win(tmp_path):
    """Field default < family default < --cfg file < saved cfg.json < typed."""
    file = tmp_path / "file.json"
    file.write_text(json.dumps({"gamma": 0.6, "rollout": 16, "learning_rate": 0.1, "batch_size": 160}))
    experiment = tmp_path / "a"
    experiment.mkdir()
    (experiment / "cfg.json").write_text(json.dumps({"learning_rate": 0.2, "batch_size": 320}))
    config = parse(tmp_path, f"--cfg={file}", "--experiment=a", "--batch_size=640")
    assert config.learning.vtrace_rho == 1.0
    assert config.model.hidden_size == 64
    assert (config.learning.gamma, config.learning.rollout) == (0.6, 16)
    assert config.learning.learning_rate == 0.2
    assert config.learning.batch_size == 640
    assert config.typed["batch_size"] == 640 and "learning_rate" not in config.typed


def test_cfg_json_round_trips_with_unknown_keys_and_the_familys_flags(tmp_path):
    experiment = tmp_path / "a"
    experiment.mkdir()
    (experiment / "cfg.json").write_text(json.dumps({"from_the_future": [1, 2], "toy_size": 7, "seed": None}))
    config = parse(tmp_path, "--experiment=a")
    config.save()
    saved = json.loads((experiment / "cfg.json").read_text())
    assert saved["from_the_future"] == [1, 2] and saved["toy_size"] == 7 and saved["seed"] is None
    again = parse(tmp_path, "--experiment=a")
    assert again.flat() == config.flat()


def test_overwriting_is_not_repeated_by_the_next_start(tmp_path):
    (tmp_path / "a").mkdir()
    once = ["--restart_behavior=overwrite", "--load_checkpoint_kind=best", "--sampler_only=True"]
    once.append(f"--figures_file={tmp_path / 'figures.jsonl'}")
    config = parse(tmp_path, "--experiment=a", *once)
    config.save()
    again = parse(tmp_path, "--experiment=a")
    assert again.run.restart_behavior == "resume"
    assert again.monitoring.load_checkpoint_kind == "latest" and not again.sampling.sampler_only
    assert again.monitoring.figures_file is None


@pytest.mark.parametrize(
    ("v2", "field", "value"),
    [("num_epochs", "ppo_epochs", 3), ("num_batches_per_epoch", "num_batches_per_iteration", 4)],
)
def test_v2_names_are_aliases(tmp_path, v2, field, value):
    assert getattr(parse(tmp_path, f"--{v2}={value}").learning, field) == value
    file = tmp_path / "v2.json"
    file.write_text(json.dumps({v2: value}))
    assert getattr(parse(tmp_path, f"--cfg={file}").learning, field) == value


def test_cuda_is_another_name_of_the_gpu(tmp_path):
    file = tmp_path / "file.json"
    file.write_text('{"device": "cuda"}')
    for flag_of_device in ("--device=cuda", f"--cfg={file}"):
        config = parse(tmp_path, flag_of_device)
        assert config.run.device == config.flat()["device"] == "gpu"


def test_values_are_parsed_by_type(tmp_path):
    config = parse(
        tmp_path,
        "--train_for_env_steps=4e6",
        "--seed=1_000",
        "--async_rl=FALSE",
        "--encoder_mlp_layers",
        "32",
        "16",
        "--no_render",
        "--toy_extent=3",
    )
    assert config.monitoring.train_for_env_steps == 4_000_000 and config.run.seed == 1000
    assert config.sampling.async_rl is False and config.evaluation.no_render is True
    assert config.model.encoder_mlp_layers == (32, 16)
    assert config.namespace().toy_size == 3
    assert "toy_size" in config.namespace()  # scripts for v1 and v2 ask so


def test_version_2_saves_null_for_an_empty_list(tmp_path):
    file = tmp_path / "v2.json"
    file.write_text(json.dumps({"normalize_input_keys": None}))
    assert parse(tmp_path, f"--cfg={file}").model.normalize_input_keys == ()


def test_none_unsets_an_optional_flag_that_a_file_has_set(tmp_path):
    file = tmp_path / "seed.json"
    file.write_text(json.dumps({"seed": 3, "wandb_user": "me"}))
    config = parse(tmp_path, f"--cfg={file}", "--seed=None")
    assert config.run.seed is None and config.monitoring.wandb_user == "me"
    with pytest.raises(ConfigError, match="--rollout"):
        parse(tmp_path, "--rollout=None")


def test_the_saved_command_line_is_the_one_that_was_parsed(tmp_path):
    config = parse(tmp_path, "--experiment=some")
    config.experiment_dir.mkdir(parents=True)
    config.save()
    saved = json.loads((config.experiment_dir / "cfg.json").read_text())
    assert saved["command_line"] == f"--env=toy_a --train_dir={tmp_path} --experiment=some"


def test_evaluation_needs_the_experiment(tmp_path):
    with pytest.raises(ConfigError, match="no experiment at"):
        parse(tmp_path, "--experiment=none", command=PLAYS)


@dataclass(frozen=True)
class Plain:
    toy_size: int = 3


@dataclass(frozen=True)
class Clashing:
    fps: int = flag(3, "frames per second")


@dataclass(frozen=True)
class LikeAnAlias:
    num_epochs: int = flag(3, "of the toy")


@pytest.mark.parametrize(
    ("flags", "defaults", "message"),
    [
        (None, {"gama": 0.5}, "defaults of toy_a: unknown flag gama; did you mean gamma"),
        (Plain, {}, "is no flag"),
        (Clashing, {}, "there is a flag --fps already"),
        (LikeAnAlias, {}, "there is a flag --num_epochs already"),
    ],
)
def test_flags_and_defaults_of_a_family_that_cannot_be_used_are_refused(tmp_path, flags, defaults, message):
    family = EnvFamily("toy_a", lambda name: None, flags, defaults)
    with pytest.raises(ConfigError, match=message):
        parse_config(["--env=toy_a", f"--train_dir={tmp_path}"], lambda env: family)


def test_an_algorithm_has_its_own_defaults_whoever_chooses_it(tmp_path):
    def learning(*flags, **defaults):
        family = EnvFamily("toy_a", lambda name: None, None, defaults)
        return parse_config(["--env=toy_a", f"--train_dir={tmp_path}", *flags], lambda env: family).learning

    typed = learning("--algo=IMPALA")
    assert learning(algo="IMPALA") == typed != learning()
    assert learning("--algo=APPO", algo="IMPALA") == learning()
