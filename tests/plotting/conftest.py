"""The clock that tests of monitoring use."""

from tests.monitoring.conftest import fake_time

__all__ = ["fake_time"]
