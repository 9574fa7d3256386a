"""Losses of policy and critic: of proximal policy optimisation (PPO), and losses that algorithms share.

PPO: Schulman et al. 2017, https://arxiv.org/abs/1707.06347. Every loss is a mean over the valid rows, and 0
with a gradient of 0 if no row is valid. Losses of policy and critic replace invalid rows before any
nonlinearity, so that not even a NaN in an invalid row reaches the loss or a gradient.
"""

import math

import torch
from torch import Tensor

from sample_factory.runtime.totals import Total, of_one_process

# Beyond this ratio of probabilities (20), the sample is too far off the new policy to have a gradient.
MAX_LOG_RATIO = math.log(20.0)


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """Returns the mean of x where `valid`, bool of the same shape, is True; 0 if it is True nowhere."""
    total = torch.where(valid, x, 0.0).sum()
    return total / valid.sum().clamp(min=1)


@torch.no_grad()
def normalize_advantages(
    advantages: Tensor,
    valid: Tensor,
    min_std: float = 1e-3,
    total: Total[Tensor] = of_one_process,
) -> Tensor:
    """Shifts and scales advantages to mean 0 and standard deviation 1 over the valid rows; others become 0.

    advantages: float32 of any shape. valid: bool of the same shape.
    min_std: smallest divisor. If all actions are equally good (constant rewards), rounding noise of the
        critic must not be scaled up to a policy gradient of full size.
    total: sums a tensor over all learners of the policy, each of which has a share of the rows.
    """
    count = total(valid.sum()).clamp(min=1)
    mean = total(torch.where(valid, advantages, 0.0).sum()) / count
    centred = torch.where(valid, advantages - mean, 0.0)
    std = (total(centred.square().sum()) / count).sqrt()
    return centred / std.clamp(min=min_std)


def policy_loss(log_ratios: Tensor, advantages: Tensor, clip_ratio: float, valid: Tensor) -> Tensor:
    """Returns PPO's policy loss: minus the mean of the clipped surrogate, eq. (7), over the valid rows, with
    the interval [1/(1+e), 1+e] instead of [1-e, 1+e], e being `clip_ratio`.

    log_ratios: log pi - log mu, differentiable; advantages: no gradient; valid: bool. All of one shape.
    The ratio is first clamped to [1/20, 20], so that an infinite log-probability gives a finite loss; a
    sample with a ratio outside of this interval has no gradient.
    """
    log_ratios = torch.where(valid, log_ratios, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratios = log_ratios.exp()
    clipped = ratios.clamp(1 / (1 + clip_ratio), 1 + clip_ratio)
    surrogate = torch.minimum(ratios * advantages, clipped * advantages)
    return -masked_mean(surrogate, valid)


def value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, clip_value: float, valid: Tensor
) -> Tensor:
    """Returns the clipped value loss of PPO: the mean over the valid rows of
    max((V - target)^2, (V_old + clamp(V - V_old, +-clip_value) - target)^2).

    values: V, differentiable; old_values: V_old, predictions of the policy that acted; targets: no gradient;
    valid: bool. All of one shape, and all on the same scale as clip_value.
    """
    clipped_values = old_values + (values - old_values).clamp(-clip_value, clip_value)
    errors = torch.where(valid, values - targets, 0.0)
    clipped_errors = torch.where(valid, clipped_values - targets, 0.0)
    return masked_mean(torch.maximum(errors.square(), clipped_errors.square()), valid)


def policy_gradient_loss(log_probs: Tensor, advantages: Tensor, valid: Tensor) -> Tensor:
    """Returns minus the mean of log pi(a|x) A, with which gradient descent follows the policy gradient.

    Espeholt et al. 2018 (IMPALA), https://arxiv.org/abs/1802.01561, section 4.2.
    log_probs: differentiable; advantages: no gradient; valid: bool. All of one shape.
    """
    surrogate = torch.where(valid, log_probs, 0.0) * torch.where(valid, advantages, 0.0)
    return -masked_mean(surrogate, valid)


def truncated_log_ratios(
    log_probs: Tensor, target_log_probs: Tensor, behavior_log_probs: Tensor, rho: float
) -> Tensor:
    """Returns log of min(mu / pi_target, rho) * pi / mu, which equals pi / max(pi_target, mu / rho).

    This is the importance ratio of IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167, section 3.1).
    It compares pi with the target network, which moves slowly, rather than with mu, which may be of any age;
    but where pi_target is less than mu / rho, it compares pi with mu / rho.

    log_probs, target_log_probs, behavior_log_probs: log-probabilities of the actions under pi
        (differentiable), under the target network, and under the policy mu that acted. All of one shape.
    rho: limit of mu / pi_target, above 0.
    """
    return log_probs - torch.maximum(target_log_probs, behavior_log_probs - math.log(rho))


def squared_error_loss(values: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """Returns half the mean of (V - target)^2 over the valid rows. values: V, differentiable; targets: no
    gradient; valid: bool. All of one shape."""
    errors = torch.where(valid, values - targets, 0.0)
    return 0.5 * masked_mean(errors.square(), valid)
