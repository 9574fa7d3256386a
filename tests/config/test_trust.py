"""A cfg.json of another account decides neither which code runs nor where files are written."""

import errno
import json
import os
import socket
import stat
import sys

import pytest

from sample_factory.config import trust
from sample_factory.config.command import PLAYS, TRAIN
from sample_factory.config.experiment_folder import MAX_TEXT
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.trust import is_signed, key_file, signed
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.evaluation.result_files import ResultFlags
from sample_factory.exporting import ExportFlags
from sample_factory.hub import EnjoyHubFlags
from sample_factory.runtime.folder_lock import FolderLock
from tests.config.flag_classes import BY_NAME, REPRESENTATIVES, flags
from tests.foreign import ENV, MODULE, ForeignFolder, foreign_copy, train_briefly

# Texts that name code, and paths; with a folder that exists outside that of the run.
CODE = (f"{MODULE}:X", f"gym_{MODULE}:X-v0", f"pettingzoo_{MODULE}", f"pettingzoo_{MODULE}:X")
PATHS = ("../../x", "{outside}/x", "~/x")
OTHERS = ("x" * (MAX_TEXT + 1), float("nan"), {}, [[1]], -1)
NUMBERS = (f"{MODULE}:X", *OTHERS, float("inf"), 2**70, True, None)
OWN_SECTIONS = {"results": ResultFlags, "export": ExportFlags, "hub": EnjoyHubFlags}
KINDS = {field.name: kind for _, field, kind in flags()}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    train_briefly(folder)
    return folder


@pytest.fixture
def foreign(trained, tmp_path, monkeypatch):
    return foreign_copy(trained, tmp_path, monkeypatch)


def parse(*argv, own=None, train_dir="train_dir"):
    argv = ["--experiment=theirs", f"--train_dir={train_dir}", *argv]
    command = TRAIN if own is None else PLAYS._replace(sections=own)
    return parse_config(argv, resolve_family, command)


def refusal(*argv, **options) -> str:
    """Returns the message with which a folder is refused; empty if it is accepted."""
    try:
        parse(*argv, **options)
    except (ConfigError, UnknownEnvError, ImportError) as error:
        return str(error)
    return ""


def test_what_this_account_has_signed_is_recognized_until_it_is_changed():
    contents = json.loads(json.dumps(signed({"env": "gym_a:B-v0", "lambda": 0.1, "layers": (1, 2)})))
    assert is_signed(contents)
    assert is_signed(dict(reversed(contents.items())))
    assert not is_signed({**contents, "env": "gym_b:B-v0"})
    assert not is_signed({**contents, "more": 1})
    assert not is_signed({**contents, "signature": "é"})
    assert not is_signed({key: value for key, value in contents.items() if key != "signature"})


@pytest.mark.parametrize("has_links", [True, False])
def test_the_key_is_readable_by_its_account_only_and_needs_no_hard_links(monkeypatch, tmp_path, has_links):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    contents = signed({"env": "a"})
    assert stat.S_IMODE(os.stat(key_file()).st_mode) == 0o600
    assert is_signed(contents) and is_signed(signed({"env": "b"}))
    assert [path.name for path in key_file().parent.iterdir()] == ["signing_key"]


def test_another_account_has_not_signed_it(monkeypatch, tmp_path):
    contents = signed({"env": "a"})
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_signed(contents), "there is no key yet"
    assert is_signed(signed({"env": "a"})) and not is_signed(contents)
    assert key_file().is_relative_to(tmp_path)


def test_a_damaged_key_is_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    signed({})
    for damaged in (b"", b"short", b"x" * 33):
        key_file().write_bytes(damaged)
        assert is_signed(signed({"env": "a"})) and len(key_file().read_bytes()) == 32


def test_without_a_folder_for_the_key_nothing_is_signed_and_that_is_logged(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert signed({"env": ENV}) == {"env": ENV}
    assert "cfg.json is not signed" in caplog.text


def test_a_relative_folder_of_configuration_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".config" / "sample_factory" / "signing_key"


def test_values_that_are_nested_too_deeply_are_not_signed():
    values = json.loads("[" * 900 + "]" * 900)
    assert not is_signed({"env": "a", "deep": [[values]], "signature": "0" * 64})


@pytest.mark.parametrize("flag", ["env", "algo", "observers", "encoder_custom", "core_custom", "matchmaking"])
@pytest.mark.parametrize("own", [None, {"results": ResultFlags}], ids=["resumed", "evaluated"])
def test_code_that_a_foreign_folder_names_is_shown_and_not_imported(foreign, flag, own):
    value = f"gym_{MODULE}:X-v0" if flag == "env" else f"{MODULE}:X"
    foreign.write(**{flag: [value] if flag == "observers" else value})
    message = refusal(own=own)
    assert value in message and flag in message and "--trust_code" in message and "\n" not in message
    foreign.check_harmless()


def test_names_that_are_typed_now_and_trust_code_are_accepted(foreign):
    foreign.write(algo=f"{MODULE}:X", observers=[f"{MODULE}:X"])
    assert f"--observers {MODULE}:X" in refusal(f"--algo={MODULE}:X")
    assert f"--algo={MODULE}:X --observers {MODULE}:X" in refusal()
    config = parse(f"--algo={MODULE}:X", "--observers", "none")
    assert config.is_foreign and config.run.observers == ("none",)
    config = parse("--trust_code")
    assert not config.is_foreign and config.run.observers == (f"{MODULE}:X",)
    assert "algo" in refusal("--trust_code=False")


@pytest.mark.parametrize(("torch", "is_safe"), [("2.9.1+cu128", False), ("2.10.0", True), ("", False)])
def test_torch_that_may_run_code_of_a_checkpoint_reads_only_own_folders(foreign, monkeypatch, torch, is_safe):
    monkeypatch.setattr(trust, "versions", lambda: {"torch": torch} if torch else {})
    message = refusal(own={})
    assert bool(message) is not is_safe and "\n" not in message
    assert is_safe or "pip install 'torch>=2.10'" in message
    assert refusal("--trust_code") == ""


def test_a_folder_cannot_trust_itself(foreign):
    foreign.write(algo=f"{MODULE}:X", trust_code=True)
    assert "algo" in refusal()
    assert "algo" in refusal(f"--cfg={foreign.folder / 'cfg.json'}", "--experiment=new")


def test_arguments_of_an_env_may_be_numbers_but_no_texts(foreign):
    foreign.write(env="pettingzoo_subprocess:check_output", env_kwargs='{"args": "ls"}')
    assert "check_output" in refusal()
    assert "env_kwargs" in refusal("--env=pettingzoo_subprocess:check_output")
    foreign.write(env_kwargs='{"g": 1, "b": [true, null], "inner": {}}')
    assert refusal() == ""
    for texts in (
        '{"x": "payload.X"}',
        '{"x": [1, ["y"]]}',
        '{"config": {"vehicle": "a.b"}}',
        '{"x": {"y": 1}}',
    ):
        foreign.write(env_kwargs=texts)
        assert "env_kwargs" in refusal() and refusal(f"--env_kwargs={texts}") == ""


def test_levels_may_have_numbers_but_no_texts_and_no_module(foreign):
    foreign.write(levels=["doom_skill=3", "is_dark=True,size=2", "gym_CartPole-v1"], level_choice="uniform")
    assert refusal() == ""
    for level in (
        "x=payload.X",
        "size=1,x=a",
        "gym_evil:Env-v0",
        "doom_wad=/etc/x",
        "pettingzoo_subprocess.x",
    ):
        foreign.write(levels=[level])
        assert "levels" in refusal() and refusal("--levels", level) == "", level
        foreign.write(eval_flags=f"--levels {level}", eval_every_env_steps=100)
        assert "eval_flags" in refusal(), level
    foreign.write(level_choice=f"{MODULE}:X")
    assert "level_choice" in refusal()


def test_values_of_an_own_recipe_or_of_the_familys_defaults_may_name_code(foreign, tmp_path):
    foreign.write(algo=f"{MODULE}:X", encoder_custom=f"{MODULE}:Y")
    (tmp_path / "recipe.json").write_text(json.dumps({"algo": f"{MODULE}:X"}))
    assert "encoder_custom" in refusal("--cfg=recipe.json") and "--algo" not in refusal("--cfg=recipe.json")
    register_env("theirs_", dict, defaults={"encoder_custom": f"{MODULE}:Y"})
    foreign.write(env="theirs_x", encoder_custom=f"{MODULE}:Y")
    assert refusal() == ""
    foreign.write(env="theirs_x", encoder_custom=f"{MODULE}:Z")
    assert "encoder_custom" in refusal()


def test_names_of_pettingzoos_own_envs_are_no_code(foreign):
    for name in ("butterfly.pistonball_v6", "butterfly/pistonball_v6"):
        foreign.write(env=f"pettingzoo_{name}")
        assert refusal() == ""
    for name in ("butterfly.a.b", "butterfly..x", "other.pistonball_v6", "butterfly"):
        foreign.write(env=f"pettingzoo_{name}")
        assert "--trust_code" in refusal()


def test_flags_of_evaluations_during_training_are_checked_too(foreign):
    for text in (f"--env=gym_{MODULE}:X-v0", f"--env pettingzoo_{MODULE}", "--video_name=../x.mp4"):
        foreign.write(eval_flags=text, eval_every_env_steps=100)
        assert "eval_flags" in refusal()
    places = (
        "--figures_file=x",
        "--train_dir=x",
        "--train_dir x",
        "--experiment other",
        "--cfg=x",
        "--json=x",
    )
    services = (
        "--wandb_project=x",
        "--ray_address local",
        "--transfer_from=x",
        "--trust_code",
        "--video_name=x",
    )
    for text in (*places, *services, "--doom_scenarios_dir=x", "--doom_scenarios_dir x"):
        foreign.write(eval_flags=text, eval_every_env_steps=100)
        assert "eval_flags" in refusal(), text
        assert refusal(f"--eval_flags={text}") == "", "what is typed is trusted"
    for text in (
        "--eval_deterministic=True",
        "--env=gym_Pendulum-v1 --seed 3",
        "--doom_skill=2",
        "--reward_scale=1e-1",
    ):
        foreign.write(eval_flags=text, eval_every_env_steps=100)
        assert refusal() == "", text


def test_places_of_another_machine_are_not_used_and_logged(foreign, caplog):
    values = {"video_name": "../../x.mp4", "wandb_dir": "/tmp/x", "with_wandb": True, "transfer_from": "~/x"}
    foreign.write(**values, ray_address="ray://stranger:10001", experiment="other", train_dir="/elsewhere")
    config = parse(own={"results": ResultFlags})
    flags = config.flat()
    assert flags["video_name"] == "replay.mp4" and not flags["with_wandb"]
    assert flags["wandb_dir"] is flags["transfer_from"] is flags["ray_address"] is None
    assert config.experiment_dir == foreign.folder
    assert all(name in caplog.text for name in (*values, "ray_address"))
    foreign.write(video_name="mine.mp4")
    assert parse("--wandb_dir=here").flat()["video_name"] == "mine.mp4"
    for name in ("a:b", "a/b.mp4", "a\\b.mp4", "~b.mp4", "..mp4"):
        foreign.write(video_name=name)
        assert parse().flat()["video_name"] == "replay.mp4"


def test_flags_of_a_single_program_and_of_wandb_are_not_taken_from_a_foreign_folder(foreign):
    of_programs = {"export_path": "x.onnx", "hf_repository": "me/x", "enjoy_script": "x; touch y"}
    of_wandb = {"wandb_user": "them", "wandb_project": "theirs", "wandb_unique_id": "theirs_1"}
    foreign.write(json="x", csv="x", **of_programs, **of_wandb, older_flag=1)
    config = parse("--with_wandb")
    assert config.monitoring.wandb_user is None and config.monitoring.wandb_project == "sample_factory"
    assert "wandb_unique_id" not in config.unknown and config.unknown["older_flag"] == 1
    config = parse(own=OWN_SECTIONS)
    for name, section in OWN_SECTIONS.items():
        assert config.extra[name] == section()


def test_a_file_of_flags_is_foreign_in_the_folder_of_a_run_or_if_a_run_has_written_it(foreign, tmp_path):
    recipe = {"env": ENV, "algo": f"{MODULE}:X"}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    (foreign.folder / "recipe.json").write_text(json.dumps(recipe))
    (tmp_path / "saved.json").write_text(json.dumps({**recipe, "cli_args": {}}))
    assert refusal("--cfg=recipe.json", "--experiment=new") == ""
    assert "algo" in refusal(f"--cfg={foreign.folder / 'recipe.json'}", "--experiment=new")
    assert "algo" in refusal("--cfg=saved.json", "--experiment=new")
    (tmp_path / "saved.json").write_text(json.dumps(signed({**recipe, "cli_args": {}})))
    assert refusal("--cfg=saved.json", "--experiment=new") == ""
    (tmp_path / "cfg.json").write_text(json.dumps(recipe))
    assert "algo" in refusal("--cfg=cfg.json", "--experiment=new")


def test_a_foreign_file_of_flags_neither_names_the_folder_of_the_run_nor_deletes_it(foreign, tmp_path):
    values = {"cli_args": {}, "env": ENV, "restart_behavior": "overwrite", "gamma": 0.5}
    values |= {"train_dir": str(tmp_path / "other"), "experiment": "mine"}
    (tmp_path / "saved.json").write_text(json.dumps(values))
    run = parse_config(["--cfg=saved.json"], resolve_family)
    assert run.learning.gamma == 0.5 and run.run.restart_behavior == "resume"
    assert run.experiment_dir.parent.name != "other" and run.run.experiment == "default_experiment"


def test_links_out_of_a_foreign_folder_are_refused_and_links_within_it_are_not(foreign, tmp_path):
    (foreign.folder / "inside").symlink_to("checkpoint_p0")
    assert refusal() == ""
    (foreign.folder / "sf_log.txt").unlink()
    (foreign.folder / "sf_log.txt").symlink_to(tmp_path / "secret")
    assert "sf_log.txt is a link" in refusal()
    for options in ({"own": {"results": ResultFlags}}, {}):
        assert "link" in refusal(**options)
    assert "link" in refusal(f"--env={ENV}", "--restart_behavior=overwrite")
    assert refusal("--trust_code") == ""
    (foreign.folder / "cfg.json").unlink()
    assert "link" in refusal(f"--env={ENV}")


def test_files_and_folders_that_vanish_while_links_are_looked_for_are_no_links(foreign, monkeypatch):
    walk = os.walk

    def walk_late(folder, onerror):
        onerror(FileNotFoundError(errno.ENOENT, "No such file", str(folder / "gone")))
        for parent, folders, files in walk(folder):
            yield parent, [*folders, "gone"], ["deleted.pth", *files]

    monkeypatch.setattr(os, "walk", walk_late)
    assert refusal() == ""


def test_hard_links_and_links_to_an_own_file_of_flags_are_refused(foreign, tmp_path):
    (tmp_path / "own").write_text("text")
    (foreign.folder / ".lock").unlink()
    os.link(tmp_path / "own", foreign.folder / ".lock")
    assert ".lock is a link" in refusal()
    (foreign.folder / ".lock").unlink()
    (tmp_path / "cfg.json").write_text(json.dumps(signed({"env": ENV})))
    (foreign.folder / "cfg.json").unlink()
    (foreign.folder / "cfg.json").symlink_to(tmp_path / "cfg.json")
    assert "cfg.json is a link" in refusal()


def test_a_lock_that_is_a_link_is_not_written(tmp_path):
    (tmp_path / "own").write_text("text")
    (tmp_path / ".lock").symlink_to(tmp_path / "own")
    with pytest.raises(OSError, match="is a link"):
        FolderLock(tmp_path)
    assert (tmp_path / "own").read_text() == "text"


def hostile_values(kind, outside):
    """Returns values for a flag of this type."""
    if kind.scalar is not str:
        return NUMBERS
    return [*CODE, *(path.format(outside=outside) for path in PATHS), *OTHERS, True, None, "\x1b[2J\n"]


@pytest.mark.parametrize("name", dict.fromkeys([*REPRESENTATIVES.values(), *BY_NAME]))
def test_any_hostile_value_of_any_flag_is_one_line_or_has_its_normal_effect(name, foreign, monkeypatch):
    """One flag of each class, and those that have rules of their own."""
    outside = foreign.root / "outside"
    outside.mkdir()
    monkeypatch.setenv("HOME", str(outside))
    foreign = ForeignFolder(foreign.root)
    assert refusal(own=OWN_SECTIONS) == "", "only the hostile values are to be refused"
    kind = KINDS[name]
    for place, value in enumerate(hostile_values(kind, outside)):
        foreign.write(**{name: [value] if kind.is_list else value})
        message = refusal(own=None if place % 2 else OWN_SECTIONS)
        assert len(message) < 1000 and message.isprintable(), message
    foreign.check_harmless()


def test_links_in_an_own_folder_are_refused_where_others_may_have_put_them(trained, tmp_path, monkeypatch):
    foreign = foreign_copy(trained, tmp_path, monkeypatch)
    (foreign.folder / "cfg.json").write_text(
        json.dumps(signed(json.loads((foreign.folder / "cfg.json").read_text())))
    )
    (foreign.folder / ".cfg.json.tmp").symlink_to(tmp_path / "x")
    assert refusal() == "", "only this account can have put it there"
    os.chmod(foreign.folder, 0o777)
    assert ".cfg.json.tmp is a link" in refusal() and "Other accounts may write" in refusal()
    os.chmod(foreign.folder, 0o755)
    if os.geteuid() == 0:
        os.chown(foreign.folder, 65534, 65534)
        assert "Other accounts may write" in refusal()


def test_the_flags_that_are_used_are_those_that_were_checked(foreign):
    path = str(foreign.folder / "cfg.json")
    opened = []
    is_counting = True

    def hook(event, arguments):
        if is_counting and event == "open" and str(arguments[0]) == path and arguments[1] is not None:
            opened.append(path)

    sys.addaudithook(hook)
    assert refusal() == "" and len(opened) == 1, "a second reading could find another file"
    is_counting = False  # a hook cannot be removed


@pytest.mark.parametrize("own", [None, {"results": ResultFlags}], ids=["resumed", "evaluated"])
def test_a_file_of_flags_that_is_no_flat_object_of_flags_is_one_line(foreign, own):
    path = foreign.folder / "cfg.json"
    good = path.read_text()
    deep = "[" * 100_000 + "]" * 100_000
    cases = {
        "more than 20,000,000 bytes": good + " " * 20_000_000,
        "not valid JSON": good.replace("{", f'{{"deep": {deep},', 1),
        "the key env is there twice": good.replace("{", f'{{"env": "gym_{MODULE}:X-v0", ', 1),
        "the key a is there twice": good.replace("{", '{"more": {"a": 1, "a": 2}, ', 1),
    }
    for words, text in cases.items():
        path.write_text(text)
        message = refusal(own=own)
        assert words in message and len(message) < 500 and message.isprintable()
    for name in ("cfg.json", "config.json"):
        path.unlink(missing_ok=True)
        (foreign.folder / name).unlink(missing_ok=True)
        os.mkfifo(foreign.folder / name)
        assert f"{name} is a named pipe" in refusal(f"--env={ENV}", own=own)
        (foreign.folder / name).unlink()


def test_special_files_in_a_foreign_folder_are_refused(foreign):
    for name, kind in (("sf_log.txt", "named pipe"), (".summary/0/x", "named pipe"), ("socket", "socket")):
        path = foreign.folder / name
        path.unlink(missing_ok=True)
        if kind == "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.relpath(path))
        else:
            os.mkfifo(path)
        assert f"{path} is a {kind}" in refusal()
        path.unlink()


def test_ten_megabytes_of_text_are_refused_in_one_line(foreign):
    for name in ("env", "env_kwargs", "eval_flags", "save_best_metric"):
        foreign.write(**{name: "'x " * 3_500_000})
        assert len(refusal()) < 500 and name in refusal()
