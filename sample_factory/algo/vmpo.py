"""V-MPO, on-policy maximum a posteriori policy optimisation (Song et al. 2020, https://arxiv.org/abs/1909.12238).

The E-step (section 4.2.1) computes a distribution psi over the better half of the samples. The M-step
(section 4.2.2) fits the policy to psi, while KL divergences limit how far the policy moves. The temperature
of psi and the multipliers of the limits have their own losses. Masked rows have no effect. rlax has the same
losses, in rlax/_src/mpo_ops.py.
"""

import torch
from torch import Tensor

from sample_factory.algo.losses import masked_mean


@torch.no_grad()
def top_half(advantages: Tensor, valid: Tensor) -> Tensor:
    """Returns a mask, bool, of the half of the valid advantages that are largest. Their number is rounded
    down, but is at least 1 if any is valid; among equal advantages, the first ones are selected.

    advantages: float32 of any shape. valid: bool of the same shape.
    """
    ranked = torch.where(valid, advantages, -torch.inf).flatten()
    order = ranked.argsort(descending=True, stable=True)
    places = torch.arange(len(order), device=order.device)
    ranks = torch.empty_like(order).scatter_(0, order, places)
    num_valid = valid.sum()
    count = torch.maximum(num_valid // 2, num_valid.clamp(max=1))
    return (ranks < count).view_as(valid)


def _log_mean_exp(x: Tensor, where: Tensor) -> Tensor:
    """Returns log(mean(exp(x))) where `where`, bool, is True; 0 without a gradient if it is True nowhere."""
    largest = torch.where(where, x, -torch.inf).max().detach()
    largest = torch.where(where.any(), largest, 0.0)
    exponentials = torch.where(where, x - largest, 0.0).exp()
    mean = masked_mean(exponentials, where)
    return torch.where(where.any(), largest + mean.clamp(min=torch.finfo(x.dtype).tiny).log(), 0.0)


@torch.no_grad()
def sample_weights(advantages: Tensor, temperature: Tensor, top: Tensor) -> Tensor:
    """Returns psi, the weights of samples in the policy loss: proportional to exp(A / temperature) where
    `top`, bool, is True, 0 elsewhere. They sum to 1."""
    scaled = advantages / temperature
    log_weights = torch.where(top, scaled - _log_mean_exp(scaled, top), 0.0)
    return torch.where(top, log_weights.exp(), 0.0) / top.sum().clamp(min=1)


def weighted_policy_loss(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Returns the policy loss of V-MPO, eq. (3): minus the sum of psi log pi(a|x). log_probs: log pi(a|x),
    differentiable; weights: psi, from `sample_weights`, of the same shape."""
    return -(weights * torch.where(weights > 0, log_probs, 0.0)).sum()


def temperature_loss(advantages: Tensor, temperature: Tensor, limit: float, top: Tensor) -> Tensor:
    """Returns the temperature loss L_eta of V-MPO, eq. (4): eta (epsilon + log mean exp(A / eta)) over the
    samples where `top`, bool, is True.

    temperature: eta, a scalar; limit: epsilon. At the eta that minimises the loss, the KL divergence of psi
        from the uniform distribution over these samples is epsilon.
    """
    loss = temperature * (limit + _log_mean_exp(advantages / temperature, top))
    return torch.where(top.any(), loss, 0.0)


def trust_region_loss(kl: Tensor, multiplier: Tensor, limit: float, valid: Tensor) -> Tensor:
    """Returns the trust-region loss L_alpha of V-MPO, eq. (5): the mean of alpha (epsilon - sg[KL]) +
    sg[alpha] KL over the valid rows, where sg stops the gradient.

    All valid rows count, not only the half with the largest advantages. kl: KL(pi_target || pi),
    differentiable. multiplier: alpha, a scalar; minimising the loss increases alpha while the divergence is
    above epsilon (limit), and decreases alpha otherwise.
    """
    kl = torch.where(valid, kl, 0.0)
    return masked_mean(multiplier * (limit - kl.detach()) + multiplier.detach() * kl, valid)
