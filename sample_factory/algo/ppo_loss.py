"""Losses of proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

Every loss is a mean over the valid rows only, and 0 with zero gradient when there are none. The policy and
the value loss cut the other rows off before any nonlinearity: even a NaN in one reaches neither the loss nor
a gradient.
"""

import math

import torch
from torch import Tensor

# A policy that has moved further than this from the one that acted says nothing reliable about this sample.
MAX_LOG_RATIO = math.log(20.0)


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """Mean of x where the bool tensor `valid`, of the same shape, is True; 0 where it never is."""
    total = torch.where(valid, x, 0.0).sum()
    return total / valid.sum().clamp(min=1)


@torch.no_grad()
def normalize_advantages(advantages: Tensor, valid: Tensor, min_std: float = 1e-3) -> Tensor:
    """Shifted and scaled to mean 0 and deviation 1 over the valid rows; the others become 0. Any shape.

    Deviations below `min_std` divide as `min_std`: where nothing distinguishes the actions (constant
    rewards), the rounding noise of the critic must not be blown up to a policy gradient of full size.
    """
    centred = torch.where(valid, advantages - masked_mean(advantages, valid), 0.0)
    std = masked_mean(centred.square(), valid).sqrt()
    return centred / std.clamp(min=min_std)


def policy_loss(log_ratios: Tensor, advantages: Tensor, clip_ratio: float, valid: Tensor) -> Tensor:
    """Clipped surrogate, eq. (7), with the symmetric interval [1/(1+e), 1+e] in place of [1-e, 1+e].

    log_ratios: log pi - log mu, differentiable; advantages: no gradient; valid: bool. All of one shape.
    The ratio is clamped to [1/20, 20] first, beyond which a sample has no gradient; so an infinite
    log-probability gives a finite loss.
    """
    log_ratios = torch.where(valid, log_ratios, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratios = log_ratios.exp()
    clipped = ratios.clamp(1 / (1 + clip_ratio), 1 + clip_ratio)
    surrogate = torch.minimum(ratios * advantages, clipped * advantages)
    return -masked_mean(surrogate, valid)


def value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, clip_value: float, valid: Tensor
) -> Tensor:
    """Mean of max((V - target)^2, (V_old + clamp(V - V_old, +-clip_value) - target)^2); no factor of 1/2.

    values: differentiable; old_values: predictions of the policy that acted; targets: no gradient; valid:
    bool. All of one shape and, like clip_value, on one scale (that of normalised returns, if there are any).
    """
    clipped_values = old_values + (values - old_values).clamp(-clip_value, clip_value)
    errors = torch.where(valid, values - targets, 0.0)
    clipped_errors = torch.where(valid, clipped_values - targets, 0.0)
    return masked_mean(torch.maximum(errors.square(), clipped_errors.square()), valid)


def kl_loss(new_distribution, behavior_distribution, valid: Tensor) -> Tensor:
    """Mean of KL(pi_new || pi_behavior) of two action distributions over rows of valid's shape."""
    return masked_mean(new_distribution.kl(behavior_distribution), valid)
