"""V-trace, off-policy corrected targets (Espeholt et al. 2018, IMPALA, https://arxiv.org/abs/1802.01561)."""

import torch
from torch import Tensor

from sample_factory.algo.gae import Estimates, discounted_sums


@torch.no_grad()
def vtrace(
    log_ratios: Tensor,
    values: Tensor,
    next_values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    continues: Tensor,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    lam: float = 1.0,
) -> Estimates:
    """Returns targets v_t of eq. (1), by remark 1, and the advantages of section 4.2.

    An advantage is rho_t (r_t + gamma v_{t+1} - V(x_t)).

    With `lam`, in [0, 1], the trace coefficients are lam * min(c_clip, ratio), as in remark 2.

    All tensors are [T, B] float32; no gradient flows.
    log_ratios: log pi(a_t|x_t) - log mu(a_t|x_t); plus or minus infinity is fine.
    values: V(x_t). next_values: V(x_{t+1}), and V(x_t) at a truncated step.
    discounts: gamma, and 0 at a terminated step.
    continues: 0 where step t is the last of its episode or where the trace must be cut, else 1. Where it is
    1, next_values[t] has to be values[t + 1]. Where it is 0, and in the last row, v_{t+1} is next_values[t].
    """
    ratios = log_ratios.exp()
    rhos = ratios.clamp(max=rho_clip)
    traces = continues * (lam * ratios.clamp(max=c_clip))
    deltas = rhos * (rewards + discounts * next_values - values)
    corrections = discounted_sums(deltas, discounts * traces)  # v_t - V(x_t)
    next_targets = next_values.clone()
    next_targets[:-1] += continues[:-1] * corrections[1:]
    advantages = rhos * (rewards + discounts * next_targets - values)
    return Estimates(targets=values + corrections, advantages=advantages)
