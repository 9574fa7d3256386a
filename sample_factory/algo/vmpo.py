"""V-MPO, on-policy maximum a posteriori policy optimisation (Song et al. 2020, https://arxiv.org/abs/1909.12238).

From the better half of the samples, a distribution psi over them is computed that the policy is fitted to
(section 4.2.1, the E-step); KL divergences limit how far the policy moves meanwhile (section 4.2.2, the
M-step). Temperature and multipliers of the limits are trained by losses of their own. Masked rows have no
effect. The losses are also those of rlax, rlax/_src/mpo_ops.py.
"""

import torch
from torch import Tensor

from sample_factory.algo.losses import masked_mean


@torch.no_grad()
def top_half(advantages: Tensor, valid: Tensor) -> Tensor:
    """Returns where the largest half of the valid advantages is, rounded down, but at least one; bool.

    Where several are equal, the first ones count. advantages: float32; valid: bool of the same shape.
    """
    ranked = torch.where(valid, advantages, -torch.inf).flatten()
    order = ranked.argsort(descending=True, stable=True)
    places = torch.arange(len(order), device=order.device)
    ranks = torch.empty_like(order).scatter_(0, order, places)
    num_valid = valid.sum()
    count = torch.maximum(num_valid // 2, num_valid.clamp(max=1))
    return (ranks < count).view_as(valid)


def _log_mean_exp(x: Tensor, where: Tensor) -> Tensor:
    """Returns log of the mean of exp(x) where `where` is True; 0 without a gradient if it never is."""
    largest = torch.where(where, x, -torch.inf).max().detach()
    largest = torch.where(where.any(), largest, 0.0)
    exponentials = torch.where(where, x - largest, 0.0).exp()
    mean = masked_mean(exponentials, where)
    return torch.where(where.any(), largest + mean.clamp(min=torch.finfo(x.dtype).tiny).log(), 0.0)


@torch.no_grad()
def sample_weights(advantages: Tensor, temperature: Tensor, top: Tensor) -> Tensor:
    """Returns psi, the weights of the samples `top` (bool): proportional to exp(A / temperature), sum 1.

    The other samples have weight 0.
    """
    scaled = advantages / temperature
    log_weights = torch.where(top, scaled - _log_mean_exp(scaled, top), 0.0)
    return torch.where(top, log_weights.exp(), 0.0) / top.sum().clamp(min=1)


def weighted_policy_loss(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Returns minus the sum of psi log pi(a|x): L_pi, eq. (3).

    log_probs: differentiable; weights: psi, from `sample_weights`.
    """
    return -(weights * torch.where(weights > 0, log_probs, 0.0)).sum()


def temperature_loss(advantages: Tensor, temperature: Tensor, limit: float, top: Tensor) -> Tensor:
    """Returns eta (epsilon + log mean exp(A / eta)) over the samples `top` (bool): L_eta, eq. (4).

    Its minimum over eta, the temperature, is where KL(psi || uniform over these samples) is epsilon, `limit`.
    """
    loss = temperature * (limit + _log_mean_exp(advantages / temperature, top))
    return torch.where(top.any(), loss, 0.0)


def trust_region_loss(kl: Tensor, multiplier: Tensor, limit: float, valid: Tensor) -> Tensor:
    """Returns the mean of alpha (epsilon - sg[KL]) + sg[alpha] KL over the valid rows: L_alpha, eq. (5).

    All valid rows count, not only the better half. sg: stop-gradient. kl: KL(pi_target || pi),
    differentiable; multiplier: alpha, which grows while the divergence is above epsilon, `limit`, and falls
    otherwise.
    """
    kl = torch.where(valid, kl, 0.0)
    return masked_mean(multiplier * (limit - kl.detach()) + multiplier.detach() * kl, valid)
