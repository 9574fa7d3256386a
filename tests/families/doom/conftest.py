import dataclasses
from types import SimpleNamespace

import pytest

from sample_factory.families.doom.doom_family import DoomFlags
from sample_factory.families.doom.make_doom_env import make_doom_env


@pytest.fixture
def doom_cfg():
    """A function of overrides: the flags that the Doom envs read."""

    def cfg(**overrides) -> SimpleNamespace:
        return SimpleNamespace(**{**dataclasses.asdict(DoomFlags()), "env_frameskip": 4, **overrides})

    return cfg


@pytest.fixture
def make_env(doom_cfg):
    """A function of name and flags that makes an env, which the fixture closes."""
    envs = []

    def make(name, render_mode=None, spec=None, **overrides):
        env = make_doom_env(name, doom_cfg(**overrides), None, render_mode, spec)
        envs.append(env)
        return env

    yield make
    for env in envs:
        env.close()
