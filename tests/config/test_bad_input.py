"""Bad input is a ConfigError, or one line on stderr and exit code 2, before anything is written."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from sample_factory import __main__, train
from sample_factory.config.command import PLAYS, TRAIN
from sample_factory.config.consistency import check_values
from sample_factory.config.flags import ConfigError, Layer, flag
from sample_factory.config.merging import build_config
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import TRAINING_SECTIONS
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.runtime.gpu import why_no_gpu
from tests.config import flag_classes
from tests.config.flag_classes import REPRESENTATIVES
from tests.mounts import mount_tmpfs
from tests.system.running import SMALL

ENV = "--env=gym_CartPole-v1"

FLAGS = {field.name: (section, field, kind) for section, field, kind in flag_classes.flags()}
ANY_NUMBER = {"reward_scale", "obs_subtract_mean"}


def parse(tmp_path, *argv, **kwargs):
    defaults = [ENV, f"--train_dir={tmp_path}", "--experiment=a"]
    return parse_config([*defaults, *argv], resolve_family, **kwargs)


def write(tmp_path, text):
    file = tmp_path / "file.json"
    file.write_text(text)
    return file


def saved(tmp_path, text):
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "a" / "cfg.json").write_text(text)


def test_every_flag_is_of_a_class_that_is_tested():
    """Then a hostile value of one flag of each class stands for all flags, also in test_trust.py."""
    for name in REPRESENTATIVES.values():
        assert REPRESENTATIVES[flag_classes.class_of(*FLAGS[name][1:])] == name
    untested = {
        field.name: flag_classes.class_of(field, kind)
        for _, field, kind in flag_classes.flags()
        if flag_classes.class_of(field, kind) not in REPRESENTATIVES
    }
    assert untested == {}


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "", "abc"])
@pytest.mark.parametrize("kind", [kind for kind in REPRESENTATIVES if kind.startswith(("int", "float"))])
def test_no_flag_accepts_nan_infinity_or_absurd_numbers(tmp_path, kind, value):
    name = REPRESENTATIVES[kind]
    with pytest.raises(ConfigError) as refused:
        parse(tmp_path, f"--{name}={value}")
    assert name in str(refused.value) and "\n" not in str(refused.value)


def test_every_number_has_a_lower_bound_and_is_refused_beyond_its_bounds():
    for name, (section, field, kind) in FLAGS.items():
        if kind.scalar not in (int, float):
            continue
        bounds = field.metadata["bounds"]
        assert {"at_least", "above"} & bounds.keys() or name in ANY_NUMBER, name
        for check, bound in bounds.items():
            beyond = kind.scalar(bound + {"at_least": -1, "above": 0, "at_most": 1}[check])
            with pytest.raises(ConfigError, match=f"^--{name}={beyond}\\b"):
                check_values(section(**{name: (beyond,) if kind.is_list else beyond}))


VALUES = """
num_policies=0 seed=-1 video_frames=-2 doom_scenarios_dir=none
gamma=1.01 learning_rate=3 default_niceness=20 num_workers=1_000_000 batch_size=3.2e10 seed=4294967296
lr_adaptive_min=0.1 num_workers=2.5 num_workers=0x10 reward_scale=-inf reward_scale=1e39 save_best_metric=
video_name= num_envs_per_worker=3 batch_size=16 figures_file=. figures_file=missing/figures.jsonl
use_rnn=1 rnn_type=gur recurrence=5 recurrence=0 recurrence=-2 experiment=.. cfg= gamma=high
num_agents=-2 num_agents=17 num_humans=-1 num_bots=-2 num_bots=17 res_w=0 res_h=-1 res_w=5000
start_bot_difficulty=151 start_bot_difficulty=-1 timelimit=0 timelimit=-3 selfplay_past_share=1.5
"""
# Flags -> words of the message; none: it begins with the name of the flag.
REFUSED = {
    **{f"--{flag}": "" for flag in VALUES.split()},
    **{f"--num_workers={'9' * digits}": "" for digits in (100, 5000)},
    "--rnn_type=gru\nlstm": "",
    "--gamma": "--gamma expected one argument",
    "--help=foo": "--help 'foo'",
    "--gama=0.9": "unknown flag --gama=0.9 --gamma? --help=all",
    "--batch-size 64": "unknown flag --batch_size?",
    "--train.learning-rate=1": "--learning_rate?",
    "--gama=1 --qqqqq --rolout=8": "--gamma? --qqqqq; --rollout?",
    "--total_timesteps=9": "envs/NOT_LEARNING.md",
    "learning_rate=1": "--flag=value",
    "--train_for_env_steps=1M": "'1M' 1e6",
    "--encoder_mlp_layers=64,64": "'64,64' spaces",
    "--num_epochs=x": "--ppo_epochs 'x' integer",
    "--cfg=none.json": "cannot read none.json",
    "--cfg=.": "cannot read directory",
    "--env=doom_batle": "did you mean doom_battle",
    "--env=gym_CartPol-v1": "did you mean gym_CartPole-v1?",
    "--env=gym_CartPole-v9": "version 9; gym_CartPole-v1",
    "--env=gym_CartPole": "no version; gym_CartPole-v1",
    "--env=gym_Taxi-v3": "out of date; gym_Taxi-v4",
    "--env=gym_CartPole\tv1": "such as CartPole-v1",
    "--env=gym_no_such_module:A-v0": "needs the module no_such_module",
    "--env=gym_Foo/Bar-v0": "gym_<module>:<id>",
    "--env=gym_CartPole-v1 --env_kwargs={'a':1}": "is not JSON",
    "--env=gym_CartPole-v1 --env_kwargs=[1]": "each argument a name",
    "--env=jelly_pong": "Names begin with one of",
    "--env=": "is missing --env=doom_basic",
    "--env": "expected one argument",
}


def refusal(*argv):
    with pytest.raises((ConfigError, UnknownEnvError, ImportError)) as refused:
        parse_config(argv, resolve_family)
    return str(refused.value)


@pytest.mark.parametrize("typed", REFUSED, ids=lambda typed: typed[:40])
def test_wrong_flags_are_refused_in_one_line_that_names_them_and_what_would_be_right(tmp_path, typed):
    argv = [word.replace("\t", " ") for word in typed.split(" ")]
    message = refusal("--env=doom_basic", f"--train_dir={tmp_path}", *argv)
    assert len(message) < 500 + len(typed) and message.isprintable()
    assert [word for word in REFUSED[typed].split() if word not in message] == []
    assert REFUSED[typed] or message.startswith(argv[0].partition("=")[0])


def test_a_default_may_be_infinite_but_a_typed_value_may_not():
    @dataclasses.dataclass(frozen=True)
    class Own:
        limit: float = flag(float("inf"), "no limit")

    sections = {**TRAINING_SECTIONS, "own": Own}
    assert build_config(sections, [], {}).extra["own"].limit == float("inf")
    with pytest.raises(ConfigError, match="must be finite"):
        build_config(sections, [Layer("command line", {"limit": -float("inf")})], {})


NO_FOLDERS = [
    *(("experiment", name) for name in ("", ".", "..", "a/b", "../a", "/a", "a\\b", "a\nb", "a" * 300)),
    *(("experiments_root", root) for root in ("/elsewhere", "..", "a/../..", "a\nb")),
    *(("train_dir", folder) for folder in ("", "~nobody-of-this-name/x")),
]


@pytest.mark.parametrize(("name", "value"), NO_FOLDERS)
@pytest.mark.parametrize("command", [TRAIN, PLAYS])
def test_a_place_of_the_experiment_that_is_no_folder_within_train_dir_is_refused(
    tmp_path, name, value, command
):
    with pytest.raises(ConfigError, match=f"^--{name}=|File name too long"):
        parse(tmp_path, f"--{name}={value}", command=command)


# Contents of a file of flags -> words of the message besides the name of the file.
BAD_FILES = {
    "{": "not valid JSON",
    "": "not valid JSON",
    "[" * 100_000: "not valid JSON",
    "[1, 2]": "one JSON object",
    "null": "one JSON object",
    '{"gamma": 2}': "gamma 2.0 at most",
    '{"gamma": NaN}': "gamma nan number",
    '{"batch_size": Infinity}': "batch_size inf int",
    '{"batch_size": NaN}': "batch_size nan int",
    '{"batch_size": null}': "batch_size None int",
    '{"batch_size": true}': "batch_size True int",
    '{"gamma": "0.9"}': "gamma '0.9' float",
    '{"gamma": 1' + "0" * 400 + "}": "gamma float",
    '{"use_rnn": 1}': "use_rnn 1 bool",
    '{"encoder_mlp_layers": "64"}': "encoder_mlp_layers '64' int",
    '{"encoder_mlp_layers": [64, "a"]}': "encoder_mlp_layers 'a' int",
    '{"normalize_input_keys": [null]}': "normalize_input_keys None str",
    '{"env": 3}': "env 3 str",
    '{"restart_behavior": []}': "restart_behavior str",
}
OF_RECIPES = {
    '{"gama": 0.9}': "unknown gama gamma?",
    '{"qqqqq": 0.9}': "unknown qqqqq",
    '{"experiment": 5}': "experiment 5 str",
    '{"experiments_root": "a\\u0000b"}': "--train_dir",
}


@pytest.mark.parametrize("text", [*BAD_FILES, *OF_RECIPES], ids=lambda text: text[:40])
def test_a_bad_file_of_flags_is_named_with_the_key(tmp_path, text):
    file = write(tmp_path, text)
    message = refusal(ENV, f"--train_dir={tmp_path}", f"--cfg={file}")
    words = (BAD_FILES | OF_RECIPES)[text].split()
    assert [word for word in words if word not in message] == [] and message.isprintable()
    assert str(file) in message or "experiments_root" in text
    if text in BAD_FILES:
        saved(tmp_path, text)
        message = refusal(ENV, f"--train_dir={tmp_path}", "--experiment=a")
        assert [word for word in ("a/cfg.json", *words) if word not in message] == []


def test_unknown_keys_of_a_saved_cfg_json_are_kept_even_if_they_look_like_typos(tmp_path):
    saved(tmp_path, json.dumps({"gama": 0.9, "from_elsewhere": {"x": 1}}))
    config = parse(tmp_path)
    config.save()
    kept = json.loads((tmp_path / "a" / "cfg.json").read_text())
    assert kept["gama"] == 0.9 and kept["from_elsewhere"] == {"x": 1}


def test_a_typed_flag_overrides_a_bad_value_of_a_saved_cfg_json(tmp_path):
    saved(tmp_path, json.dumps({"gamma": 7, "batch_size": 320}))
    config = parse(tmp_path, "--gamma=0.9")
    assert (config.learning.gamma, config.learning.batch_size) == (0.9, 320)


def test_a_cfg_json_that_cannot_be_written_is_logged_without_an_exception(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    saved(tmp_path, "{}")
    config = parse(tmp_path)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    config.save()
    (record,) = caplog.records
    assert "COULD NOT WRITE" in record.getMessage() and "No space left" in record.getMessage()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["cfg.json"]
    assert (tmp_path / "a" / "cfg.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env=doom_batle"], "did you mean doom_battle"),
        ([ENV, "--cfg=none.json"], "cannot read none.json"),
        ([ENV, *SMALL, "--inline_samplers=3"], "--num_workers=2"),
        ([ENV, "--encoder_custom=json:Encoder"], "json has no attribute Encoder"),
        ([ENV, "--vector_env_copies=2", "--env_frameskip=3"], "--env_frameskip=3"),
    ],
)
def test_a_command_reports_bad_input_in_one_line_and_writes_nothing(
    tmp_path, monkeypatch, refused_by, flags, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused_by(train.main, *flags)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "reason"),
    [("file", "Not a directory"), ("file/below", "Not a directory"), ("/proc/none", "No such file")],
    ids=["a file", "below a file", "a file system that takes no folders"],
)
def test_a_train_dir_that_cannot_be_written_to_is_refused(refused_by, tmp_path, place, reason):
    (tmp_path / "file").write_text("mine")
    line = refused_by(train.main, ENV, f"--train_dir={tmp_path / place}", "--experiment=a")
    assert reason in line and f"{tmp_path / place}/a" in line
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_read_only_train_dir_is_refused(refused_by, tmp_path):
    """A file system that is mounted so refuses root, too."""
    folder = tmp_path / "disk"
    mount_tmpfs(folder, "ro")
    try:
        line = refused_by(train.main, ENV, f"--train_dir={folder}", "--experiment=a")
        assert "Read-only file system" in line
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(refused_by, tmp_path):
    line = refused_by(train.main, ENV, f"--train_dir={tmp_path / 'new'}", "--device=gpu")
    assert "--device=gpu, but " in line and "Use --device=cpu or auto" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", __main__.COMMANDS)
def test_every_program_reports_bad_input_in_one_line_and_writes_nothing(
    tmp_path, monkeypatch, refused_by, name
):
    """The messages themselves are those of any program."""
    monkeypatch.chdir(tmp_path)
    kind = __main__.declaration(name).experiment
    takes_experiment = bool(kind)
    flags = [ENV, "--experiment=a", f"--train_dir={tmp_path}"] * takes_experiment
    if kind == "saved":
        saved(tmp_path, "{}")
    before = sorted(tmp_path.rglob("*"))
    flag, message = (
        ("gama", "did you mean --gamma?") if takes_experiment else ("qqq", "unknown flag --qqq=0.9")
    )
    assert message in refused_by(__main__.command(name), *flags, f"--{flag}=0.9")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [("HalfCheetah-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d")],
)
def test_an_env_whose_package_is_missing_names_the_extra(
    tmp_path, monkeypatch, refused_by, env, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    saved(tmp_path, "{}")
    flags = [f"--env=gym_{env}", f"--train_dir={tmp_path}", "--experiment=a"]
    assert f"pip install -e '.[{extra}]' in the checkout" in refused_by(train.main, *flags)
