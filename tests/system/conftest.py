"""Fixtures for tests of whole runs."""

import pytest

from tests.system import running


@pytest.fixture(autouse=True)
def no_run_outlives_its_test():
    yield
    running.kill_started()
