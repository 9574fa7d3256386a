import logging

import pytest


class FakeTime:
    """A clock that tests move by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def fake_time():
    return FakeTime()


@pytest.fixture
def logged(caplog, monkeypatch):
    """The lines that were logged. Elsewhere the logger may have been set up not to tell anybody above it."""
    monkeypatch.setattr(logging.getLogger("sample_factory"), "propagate", True)
    caplog.set_level(logging.INFO, "sample_factory")
    return lambda: caplog.messages
