"""Saved experiments with untrained policies, to export."""

import functools
from collections.abc import Callable

import pytest
import torch

from sample_factory.models.normalizers import RunningNormalizer
from tests.evaluation.conftest import save_untrained


@pytest.fixture(scope="session")
def save() -> Callable[..., list[str]]:
    """Returns save(folder, env, *flags), which makes an experiment and returns the flags that name it."""
    return functools.partial(save_untrained, change=disturb)


@torch.no_grad()
def disturb(model: torch.nn.Module) -> None:
    """Changes weights that are small or zero at the start, and statistics that are trivial."""
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    for module in model.modules():
        if isinstance(module, RunningNormalizer):
            module.mean.add_(torch.rand_like(module.mean))
            module.variance.mul_(1 + torch.rand_like(module.variance))
