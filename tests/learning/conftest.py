"""For tests that train small networks."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Matrices are so small here that a second thread costs time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
