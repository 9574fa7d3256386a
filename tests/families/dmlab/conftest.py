import argparse
from pathlib import Path

import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture
def stand_in(monkeypatch):
    """Makes `import deepmind_lab` find the stand-in."""
    monkeypatch.syspath_prepend(STAND_IN)


@pytest.fixture
def dmlab_cfg(tmp_path):
    """Returns a function from an env's name and flags to the `cfg` that its make_env gets."""

    def cfg(name: str, *flags: str) -> argparse.Namespace:
        folders = [f"--train_dir={tmp_path}", f"--dmlab_level_cache_path={tmp_path / 'cache'}"]
        argv = [f"--env={name}", "--experiment=lab", *folders, *flags]
        return parse_config(argv, resolve_family).namespace()

    return cfg


@pytest.fixture
def make(stand_in, dmlab_cfg):
    """Returns a function that makes an env on the stand-in; the fixture closes the envs."""
    envs = []

    def make_env(name, *flags, worker_index=0, vector_index=0, env_id=0):
        env_config = EnvConfig(worker_index, vector_index, env_id)
        envs.append(resolve_family(name).make(dmlab_cfg(name, *flags), env_config))
        return envs[-1]

    yield make_env
    for env in envs:
        env.close()
