"""The importance ratio of IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167, section 3.1)."""

import math

import torch
from torch import Tensor


def truncated_log_ratios(
    log_probs: Tensor, target_log_probs: Tensor, behavior_log_probs: Tensor, rho: float
) -> Tensor:
    """Returns log of min(mu / pi_target, rho) * pi / mu, which equals pi / max(pi_target, mu / rho).

    The surrogate compares pi with the target network, which moves slowly, rather than with mu, which may be
    of any age; where the target has become much less likely to act in this way, with mu / rho.

    log_probs: of the actions under pi, differentiable. target_log_probs, behavior_log_probs: under the target
    network and under the policy that acted (mu). All of one shape. rho: above 0.
    """
    return log_probs - torch.maximum(target_log_probs, behavior_log_probs - math.log(rho))
