import logging

import pytest


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
