import logging
from types import SimpleNamespace

import pytest

FRAMESKIP = 4


def sizes(num_policies: int = 1, envs_per_split: int = 8, alternates: bool = False) -> SimpleNamespace:
    """Returns the counts of a Topology that monitoring reads; a first batch has 4,096 samples."""
    return SimpleNamespace(
        num_policies=num_policies,
        frameskip=FRAMESKIP,
        num_agents=num_policies,
        num_splits=2,
        envs_per_split=envs_per_split,
        agents_per_env=1,
        trajectories_per_batch=128,
        rollout=32,
        rollouts_per_iteration=4 if alternates else None,
    )


class FakeTime:
    """A clock that tests set by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def fake_time():
    return FakeTime()


@pytest.fixture
def logged(caplog, monkeypatch):
    """Returns the logged lines. An earlier test may have switched off the propagation to caplog."""
    monkeypatch.setattr(logging.getLogger("sample_factory"), "propagate", True)
    caplog.set_level(logging.INFO, "sample_factory")
    return lambda: caplog.messages
