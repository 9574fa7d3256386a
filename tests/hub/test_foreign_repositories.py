"""Repositories of strangers: loading and converting them runs nothing, and writes into one folder only."""

import json
from pathlib import Path

import pytest

from sample_factory import enjoy
from sample_factory.__main__ import command
from sample_factory.hub import load_from_hub
from tests.foreign import MODULE, PAYLOAD
from tests.hub.conftest import contents
from tests.hub.hub_server import Repository

NAME = "stranger/theirs"
CHECKPOINT = "checkpoint_p0/checkpoint_000000001_1.pth"


@pytest.fixture
def files(old):
    """The files of an experiment of version 2, by their paths in it."""
    return contents(old("v2_mujoco_hopper"))


@pytest.fixture
def serve(hub, tmp_path, monkeypatch):
    """Puts files into the repository NAME, with a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    payload = PAYLOAD.format(mark=str(tmp_path / "mark")).encode()

    def put(files):
        hub.repositories[NAME] = Repository(private=False)
        hub.repositories[NAME].files = {"__init__.py": b"", "payload.py": payload, **files}

    return put


def load(tmp_path):
    return load_from_hub.main(["-r", NAME, f"--train_dir={tmp_path / 'train_dir'}"])


@pytest.mark.parametrize(
    "flags",
    [
        {"env": "pettingzoo_subprocess:check_output", "env_kwargs": '{"args": "touch mark", "shell": true}'},
        {"env": f"gym_{MODULE}:X-v0"},
        {"env": f"pettingzoo_{MODULE}"},
        {"env": "gym_Hopper-v4", "observers": [f"{MODULE}:X"]},
        {"env": "gym_Hopper-v4", "env_kwargs": '{"xml_file": "/etc/passwd"}'},
    ],
    ids=lambda flags: flags["env"],
)
def test_an_experiment_of_version_2_that_names_code_is_loaded_and_not_converted(
    flags, files, serve, tmp_path, capfd
):
    serve({**files, "config.json": json.dumps({**json.loads(files["config.json"]), **flags}).encode()})
    assert load(tmp_path) == 0
    folder = tmp_path / "train_dir" / "theirs"
    assert (folder / "config.json").is_file(), "it is the old one"
    assert "--trust_code" in capfd.readouterr().err
    source = [f"--source={folder}", "--experiment=new", f"--train_dir={tmp_path / 'train_dir'}"]
    assert command("convert")(source) == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 1 and "--trust_code" in errors[0]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "token") == ["train_dir"]
    assert [path.name for path in (tmp_path / "train_dir").iterdir()] == ["theirs"]


def test_a_converted_experiment_is_not_signed(files, serve, tmp_path):
    serve(files)
    assert load(tmp_path) == 0
    settings = json.loads((tmp_path / "train_dir" / "theirs" / "cfg.json").read_text())
    assert settings["hidden_size"] and "signature" not in settings


@pytest.mark.parametrize(
    ("env", "flag"),
    [("doom_basic; touch mark", "'--env=doom_basic; touch mark'"), ("doom_\x1b[2J", "--env=NAME")],
    ids=["a command", "control characters"],
)
def test_commands_for_a_loaded_experiment_are_safe_to_copy(env, flag, serve, tmp_path, capfd):
    serve({"cfg.json": json.dumps({"env": env}).encode(), CHECKPOINT: b"anything"})
    assert load(tmp_path) == 0
    out = capfd.readouterr().out
    assert f"sample_factory.train {flag} --experiment" in out and "\x1b" not in out


def test_a_loaded_experiment_that_names_code_is_shown_with_what_to_do(serve, tmp_path, capfd):
    serve({"cfg.json": json.dumps({"env": f"gym_{MODULE}:X-v0"}).encode(), CHECKPOINT: b"anything"})
    assert load(tmp_path) == 0
    out = capfd.readouterr().out
    assert "--trust_code" in out and "sample_factory.enjoy" not in out
    assert enjoy.main(["--experiment=theirs", f"--train_dir={tmp_path / 'train_dir'}", "--no_render"]) == 2
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["../escaped.txt", "/escaped.txt", "checkpoint_p0/../../escaped.txt"])
def test_a_repository_with_names_that_lead_elsewhere_is_refused(name, serve, tmp_path, capfd):
    serve({"cfg.json": b'{"env": "doom_basic"}', CHECKPOINT: b"anything", name: b"escaped"})
    assert load(tmp_path) == 1
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.parent.rglob("escaped.txt")) and not Path("/escaped.txt").exists()


def test_symbolic_links_in_a_download_are_left_out(serve, tmp_path, monkeypatch, capfd):
    serve({"cfg.json": b'{"env": "doom_basic"}', CHECKPOINT: b"anything"})
    download = load_from_hub.download
    (tmp_path / "secret").write_text("secret")

    def download_with_links(api, repository, revision, folder):
        download(api, repository, revision, folder)
        (folder / "sf_log.txt").symlink_to(tmp_path / "secret")
        (folder / "checkpoint_p1").symlink_to(tmp_path)
        (folder / "checkpoint_p0" / "best.pth").symlink_to("../../../../secret")

    monkeypatch.setattr(load_from_hub, "download", download_with_links)
    assert load(tmp_path) == 0
    folder = tmp_path / "train_dir" / "theirs"
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert (folder / CHECKPOINT).read_bytes() == b"anything"
    assert (tmp_path / "secret").read_text() == "secret"
    assert "sf_log.txt is a symbolic link" in capfd.readouterr().err
