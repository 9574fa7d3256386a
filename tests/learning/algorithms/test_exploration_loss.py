"""The losses of --exploration_loss."""

import math

import gymnasium as gym
import pytest
import torch

from sample_factory.learning.algorithms.extra_losses import MAX_SYMMETRIC_KL, exploration_loss
from sample_factory.models.action_distributions import action_distribution
from sample_factory.spaces.actions import action_layout

VALID = torch.ones(4, dtype=torch.bool)


def loss(name, logits, valid=VALID):
    layout = action_layout(gym.spaces.MultiDiscrete([3, 2]))
    return exploration_loss(name, action_distribution(layout, logits), valid)


def test_entropy_of_a_uniform_policy():
    assert float(loss("entropy", torch.zeros(4, 5))) == pytest.approx(-math.log(6))


def test_symmetric_kl_is_0_for_a_uniform_policy_and_capped_for_a_deterministic_one():
    assert float(loss("symmetric_kl", torch.zeros(4, 5))) == pytest.approx(0, abs=1e-6)
    certain = torch.tensor([[1e4, 0.0, 0.0, 1e4, 0.0]]).expand(4, -1)
    assert float(loss("symmetric_kl", certain)) == MAX_SYMMETRIC_KL


@pytest.mark.parametrize("name", ["entropy", "symmetric_kl"])
def test_a_masked_row_has_no_effect(name):
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    valid = torch.tensor([True, False, True, True])
    torch.testing.assert_close(loss(name, logits, valid), loss(name, logits[valid], VALID[:3]))
