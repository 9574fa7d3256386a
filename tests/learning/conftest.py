"""Fixtures of tests that train small networks."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Limits torch to one thread: matrices are so small that a second one costs time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
