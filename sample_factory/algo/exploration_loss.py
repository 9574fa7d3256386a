"""Losses that keep a policy from becoming deterministic too soon, for action distributions."""

from torch import Tensor

from sample_factory.algo.ppo_loss import masked_mean

MAX_SYMMETRIC_KL = 30.0


def entropy_loss(distribution, valid: Tensor) -> Tensor:
    """Minus the mean entropy over the valid rows (bool, shape of the distribution's batch)."""
    return -masked_mean(distribution.entropy(), valid)


def symmetric_kl_loss(distribution, valid: Tensor) -> Tensor:
    """Mean of (KL(pi || u) + KL(u || pi)) / 2 over valid rows, u uniform; at most 30. For discrete actions.

    Unlike the entropy it grows without bound as the probability of any action goes to 0, hence the cap.
    """
    return masked_mean(distribution.symmetric_kl_with_uniform(), valid).clamp(max=MAX_SYMMETRIC_KL)


# The values of --exploration_loss.
EXPLORATION_LOSSES = {"entropy": entropy_loss, "symmetric_kl": symmetric_kl_loss}
