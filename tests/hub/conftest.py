"""A Hub on the loopback, and a trained experiment."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from sample_factory import train
from tests.hub.hub_server import TOKEN, HubServer

TINY = ["--serial_mode=True", "--num_workers=1", "--num_envs_per_worker=2", "--worker_num_splits=1"]
TINY += ["--rollout=8", "--batch_size=64", "--hidden_size=8", "--encoder_mlp_layers", "8", "--device=cpu"]
ENV = "gym_CartPole-v1"


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
    assert train.main([*flags, *TINY, "--seed=3"]) == 0
    return folder / "pole"


@pytest.fixture
def trained(trained_once, tmp_path) -> Path:
    """A copy of it: tmp_path/pole."""
    return shutil.copytree(trained_once, tmp_path / "pole")
