"""Fixtures of the tests on a GPU."""

import pytest
import torch


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    """Switches TF32 off: with it, convolutions and recurrent networks on a GPU round their inputs."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
