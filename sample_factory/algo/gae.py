"""Generalised advantage estimation, GAE (Schulman et al. 2016, https://arxiv.org/abs/1506.02438)."""

from typing import NamedTuple

import torch
from torch import Tensor


class Estimates(NamedTuple):
    """Result of GAE or V-trace.

    targets: for the critic. advantages: weights of the policy gradient. Both [T, B] float32.
    """

    targets: Tensor
    advantages: Tensor


def discounted_sums(terms: Tensor, decays: Tensor) -> Tensor:
    """Returns y with y_t = terms_t + decays_t * y_{t+1} and y_T = 0. All [T, B]."""
    sums = []
    y_tp1 = torch.zeros_like(terms[0])
    for term_t, decay_t in zip(reversed(terms.unbind()), reversed(decays.unbind())):
        y_tp1 = torch.addcmul(term_t, decay_t, y_tp1)
        sums.append(y_tp1)
    return torch.stack(sums[::-1])


@torch.no_grad()
def gae(
    values: Tensor, next_values: Tensor, rewards: Tensor, discounts: Tensor, continues: Tensor, lam: float
) -> Estimates:
    """Advantages of eq. (16), computed backwards, and the TD(lambda) targets A_t + V(x_t).

    All tensors are [T, B] float32; no gradient flows.
    values: V(x_t). next_values: V(x_{t+1}), and V(x_t) at a truncated step.
    discounts: gamma, and 0 at a terminated step.
    continues: 0 where step t is the last of its episode or where the sum must be cut, else 1. Where it is 1,
    next_values[t] has to be values[t + 1]. The last row bootstraps from next_values in either case.
    """
    deltas = rewards + discounts * next_values - values
    advantages = discounted_sums(deltas, discounts * continues * lam)
    return Estimates(targets=advantages + values, advantages=advantages)
