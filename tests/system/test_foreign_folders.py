"""Every command with an experiment of another account: it runs nothing and writes nothing elsewhere."""

import json
import os
import shutil
import textwrap

import onnx
import pytest

import sample_factory
from sample_factory import enjoy, train
from sample_factory.__main__ import command
from sample_factory.config.command import PLAYS
from sample_factory.config.flags import ConfigError, section_fields
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS
from sample_factory.envs.env_registry import resolve_family
from sample_factory.exporting import export_policies
from tests.foreign import ENV, FLAGS, MODULE, foreign_copy, train_briefly


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    train_briefly(folder)
    return folder


@pytest.fixture
def foreign(trained, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return foreign_copy(trained, tmp_path, monkeypatch)


IN_FOLDER = ["--experiment=theirs", "--train_dir=train_dir"]
COMMANDS = {
    "export": (command("export"), ["--export_check_steps=4"]),  # before the weights change
    "train": (train.main, ["--train_for_env_steps=600", *FLAGS]),
    "enjoy": (enjoy.main, ["--no_render", "--max_num_frames=20", "--save_video", "--seed=1"]),
    "eval": (command("eval"), ["--eval_episodes=2", "--serial_mode=True"]),
    "match": (command("match"), ["--num_matches=2", "--opponent_checkpoint=best"]),
}
CALLS = {
    "load_policy": lambda: sample_factory.load_policy("theirs", "train_dir").act([0.0, 0.0, 0.0, 0.0]),
    "evaluate": lambda: sample_factory.evaluate("theirs", "train_dir", num_episodes=2, serial_mode=True),
    "run": lambda: sample_factory.run(experiment="theirs", train_dir="train_dir", train_for_env_steps=800),
    "export_onnx": lambda: sample_factory.export_onnx("theirs", train_dir="train_dir", export_check_steps=4),
}


def test_no_command_waits_for_a_named_pipe_in_an_own_folder(trained, tmp_path, monkeypatch, capfd):
    shutil.copytree(trained / "train_dir", tmp_path / "train_dir")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "train_dir" / "theirs"
    (folder / "sf_log.txt").unlink()
    checkpoints = ["checkpoint_000009999_99999.pth", "best_000009999_9_x_1.0.pth", ".temp_checkpoint"]
    for name in ("sf_log.txt", ".cfg.json.tmp", ".result.json.tmp", *checkpoints):
        os.mkfifo(folder / ("checkpoint_p0" if name in checkpoints else "") / name)
    train_arguments = [*IN_FOLDER, f"--env={ENV}", "--train_for_env_steps=600", *FLAGS]
    assert train.main(train_arguments) == 0
    err = capfd.readouterr().err
    assert "sf_log.txt is a named pipe" in err and "checkpoint_000009999_99999.pth is a named pipe" in err
    assert command("eval")([*IN_FOLDER, *COMMANDS["eval"][1]]) == 0

    def refused(name, main, arguments):
        capfd.readouterr()
        assert main(arguments) == 2
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 1 and f"{name} is a named pipe" in lines[0]

    file = min(folder.glob(".summary/0/*"))
    file.unlink()
    os.mkfifo(file)
    refused(file.name, command("plot_curves"), [str(folder), "--out=x.png"])
    for name in (".lock", "cfg.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        refused(name, train.main, [*train_arguments, "--train_for_env_steps=900"])
    for main, flags in COMMANDS.values():
        refused("cfg.json", main, [*IN_FOLDER, *flags])
    refused("cfg.json", command("plot_curves"), [str(folder), "--out=x.png"])


def with_all_flags(foreign, text, file):
    """Sets all flags that accept a text to it, or to `file`, as far as they are accepted together."""
    of_programs = {"json": "x", "csv": "x", "export_path": "x.onnx", "hf_repository": "me/x"}
    accepted = {"save_video": True, **of_programs}
    texts = {}
    for section in TRAINING_SECTIONS.values():
        for field, kind in section_fields(section):
            # Names of parts, observations and checkpoints are looked up later, and refused in one line.
            is_looked_up = field.metadata["names_code"] or field.name in (
                "normalize_input_keys",
                "critic_only_keys",
                "checkpoint",
            )
            if kind.scalar is not str or field.name in OWN_FOLDER or is_looked_up:
                continue
            value = file if field.metadata["metavar"] == "FILE" else text
            texts[field.name] = [value] if kind.is_list else value

    def accept(names):
        foreign.write(**accepted, **{name: texts[name] for name in names})
        try:
            parse_config(IN_FOLDER, resolve_family, PLAYS)
        except ConfigError:
            half = len(names) // 2
            for part in (names[:half], names[half:]) if half else ():
                accept(part)
        else:
            accepted.update({name: texts[name] for name in names})

    accept(list(texts))
    foreign.write(**accepted)
    return accepted


@pytest.fixture(scope="module")
def converted():
    """Keeps what the exporter has made of each network: it takes seconds, and reads no flags."""
    models = {}
    to_onnx = export_policies.to_onnx

    def convert(network):
        weights = b"".join(tensor.numpy().tobytes() for tensor in network.state_dict().values())
        if weights not in models:
            models[weights] = to_onnx(network).SerializeToString()
        return onnx.load_from_string(models[weights])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_policies, "to_onnx", convert)
        yield


@pytest.mark.parametrize(("text", "file"), [(f"{MODULE}:X", "x.mp4"), ("../../x", "../../x")])
@pytest.mark.usefixtures("converted")
def test_hostile_texts_that_are_no_error_leave_nothing_outside_with_any_command(foreign, text, file, capfd):
    accepted = with_all_flags(foreign, text, file)
    assert "video_name" in accepted and "save_best_metric" in accepted
    for name, (main, flags) in COMMANDS.items():
        code = main([*IN_FOLDER, *flags])
        out = capfd.readouterr()
        assert code == (2 if name == "match" else 0), (name, out.err)
        assert "Traceback" not in out.out + out.err
    for name, call in CALLS.items():
        if name != "export_onnx":  # as the command, and slow
            call()
    foreign.check_harmless()


@pytest.mark.parametrize(
    "flags",
    [
        {"env": f"gym_{MODULE}:X-v0"},
        {"env": f"pettingzoo_{MODULE}"},
        {"env": "pettingzoo_subprocess:check_output", "env_kwargs": '{"args": "touch mark", "shell": true}'},
        {"observers": [f"{MODULE}:X"]},
        {"algo": f"{MODULE}:X"},
        {"actor_critic_custom": f"{MODULE}:X"},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_code_in_the_flags_is_refused_in_one_line_by_every_command_and_call(foreign, flags, capfd):
    foreign.write(**flags)
    for main, arguments in COMMANDS.values():
        assert main([*IN_FOLDER, *arguments]) == 2
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 1 and "--trust_code" in lines[0]
    for call in CALLS.values():
        with pytest.raises(ConfigError, match="trust_code"):
            call()
    checkpoint = next(foreign.folder.glob("checkpoint_p0/checkpoint_*.pth"))
    with pytest.raises(ConfigError, match="trust_code"):
        sample_factory.load_policy(checkpoint)
    (foreign.folder.parent / "settings.json").write_text(json.dumps({"env": ENV, **flags}))
    elsewhere = shutil.move(checkpoint, foreign.folder.parent)
    with pytest.raises(ConfigError, match="trust_code"):
        sample_factory.load_policy(elsewhere, cfg=foreign.folder.parent / "settings.json")
    assert not foreign.mark.exists()


OWN_ENV = """
    import gymnasium as gym
    from gymnasium.envs.classic_control import CartPoleEnv

    gym.register("Pole-v0", entry_point=CartPoleEnv, max_episode_steps=50)
"""


def test_an_own_experiment_with_code_needs_no_flag_and_another_account_has_to_allow_it(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "own_pole.py").write_text(textwrap.dedent(OWN_ENV))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("XDG_CONFIG_HOME")

    def call(command, account, *flags):
        monkeypatch.setenv("HOME", str(tmp_path / account))
        main, _ = COMMANDS[command]
        return main(["--experiment=own", "--train_dir=runs", *flags])

    train_flags = ["--train_for_env_steps=400", *FLAGS]
    eval_flags = ["--eval_episodes=2", "--serial_mode=True"]
    assert call("train", "first", "--env=gym_own_pole:Pole-v0", *train_flags) == 0
    assert call("train", "first", "--train_for_env_steps=600") == 0, "it is resumed as before"
    assert call("eval", "first", *eval_flags) == 0
    assert not (tmp_path / "second").exists()
    capfd.readouterr()
    assert call("eval", "second", *eval_flags) == 2
    assert "gym_own_pole:Pole-v0" in capfd.readouterr().err
    assert call("eval", "second", *eval_flags, "--env=gym_own_pole:Pole-v0") == 0
    assert call("eval", "second", *eval_flags, "--trust_code") == 0
    assert call("train", "second", "--train_for_env_steps=800") == 2
    assert call("train", "second", "--train_for_env_steps=800", "--trust_code") == 0
    assert call("eval", "second", *eval_flags) == 0, "the second account has signed it"
    assert call("eval", "first", *eval_flags) == 2
    assert json.loads((tmp_path / "runs" / "own" / "cfg.json").read_text())["env"] == "gym_own_pole:Pole-v0"
