"""Fixtures of the tests on a GPU."""

import pytest
import torch


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    """Switches TF32 off, to which convolutions and recurrent networks round on a GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
