import logging

import pytest

from sample_factory.monitoring.bottleneck import EnvCounts
from sample_factory.monitoring.run_progress import RunSizes

FRAMESKIP = 4


def run_sizes(num_policies: int = 1, num_agents: int = 1, envs_per_split: int = 8) -> RunSizes:
    """Returns sizes of a run with a first batch of 4,096 samples."""
    envs = EnvCounts(num_splits=2, envs_per_split=envs_per_split, agents_per_env=1)
    return RunSizes(num_policies, FRAMESKIP, num_agents * num_policies, 4096, envs)


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
