"""A Hub on the loopback, and a trained experiment."""

import shutil
import tarfile
from pathlib import Path

import pytest
from huggingface_hub import constants

from sample_factory import train
from tests.foreign import ENV, FLAGS
from tests.hub.hub_server import TOKEN, HubServer


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub that the library uses in place of the real one, with the token of a user who may write."""
    server = HubServer()
    # What HF_ENDPOINT, HF_HUB_DISABLE_XET, HF_TOKEN_PATH and HF_HUB_CACHE set when a process starts.
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    yield server
    server.close()


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory) -> Path:
    """The folder of an experiment that was trained for a moment."""
    folder = tmp_path_factory.mktemp("trained")
    flags = [f"--env={ENV}", "--experiment=pole", f"--train_dir={folder}", "--train_for_env_steps=400"]
    assert train.main([*flags, *FLAGS, "--seed=3"]) == 0
    return folder / "pole"


@pytest.fixture
def trained(trained_once, tmp_path) -> Path:
    """A copy of it: tmp_path/pole."""
    return shutil.copytree(trained_once, tmp_path / "pole")


@pytest.fixture
def old(tmp_path_factory):
    """Unpacks an experiment of a published version; returns its folder.

    Beside it lies `expected.npz`: observations [T, B, ...], and the logits, values and recurrent states that
    the published 1.123.0 or 2.1.1 computes from them with the newest checkpoint of policy 0. Most weights of
    large layers are zero, so that the files are small.
    """

    def unpack(name: str) -> Path:
        folder = tmp_path_factory.mktemp("published")
        with tarfile.open(Path(__file__).parent / "published" / f"{name}.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
            archive.extractall(folder)
        return folder / name

    return unpack


def contents(folder: Path) -> dict[str, bytes]:
    """Returns all files of a folder by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
