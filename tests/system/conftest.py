"""For tests of whole runs."""

import pytest

from tests.system import running


@pytest.fixture(autouse=True)
def nothing_goes_on():
    yield
    running.end_what_is_left()
