"""Advantages and targets of the critic, by GAE or by V-trace.

In both functions, all tensors are [T, B] float32, and no gradient flows:

values: V(x_t). next_values: V(x_{t+1}), and V(x_t) at a truncated step.
discounts: gamma, and 0 at a terminated step.
continues: 0 where step t is the last of its episode or where the sum over later steps must be cut, else 1.
    Where it is 1, next_values[t] has to be values[t + 1]. Where it is 0, and in the last row, the sum ends
    with next_values[t].
"""

import torch
from torch import Tensor


def discounted_sums(terms: Tensor, decays: Tensor) -> Tensor:
    """Computes the backward recursion y_t = terms_t + decays_t * y_{t+1} with y_T = 0. Returns y, [T, B], for
    terms and decays [T, B]."""
    sums = []
    y_tp1 = torch.zeros_like(terms[0])
    for term_t, decay_t in zip(reversed(terms.unbind()), reversed(decays.unbind())):
        y_tp1 = torch.addcmul(term_t, decay_t, y_tp1)
        sums.append(y_tp1)
    return torch.stack(sums[::-1])


@torch.no_grad()
def gae(
    values: Tensor, next_values: Tensor, rewards: Tensor, discounts: Tensor, continues: Tensor, lam: float
) -> tuple[Tensor, Tensor]:
    """Returns advantages A_t by generalised advantage estimation, and the TD(lambda) targets A_t + V(x_t).

    Schulman et al. 2016, https://arxiv.org/abs/1506.02438, eq. (16), computed backwards.

    All tensors are [T, B] float32. values, next_values: V(x_t), V(x_{t+1}). discounts: gamma, or 0 where the
    episode terminates. continues: 0 where the sum over later steps ends after this step, else 1.
    """
    deltas = rewards + discounts * next_values - values
    advantages = discounted_sums(deltas, discounts * continues * lam)
    return advantages, advantages + values


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
) -> tuple[Tensor, Tensor]:
    """Returns the advantages rho_t (r_t + gamma v_{t+1} - V(x_t)) and the off-policy corrected targets v_t.

    Espeholt et al. 2018 (IMPALA), https://arxiv.org/abs/1802.01561: eq. (1), by remark 1, and section 4.2.

    All tensors are [T, B] float32; values, next_values, discounts and continues as in `gae`.
    log_ratios: log pi(a_t|x_t) - log mu(a_t|x_t); may be plus or minus infinity.
    rho_clip, c_clip: upper limits of the importance ratios, in the paper rho-bar and c-bar.
    lam: number in [0, 1]; trace coefficients are lam * min(c_clip, ratio), as in remark 2.
    """
    ratios = log_ratios.exp()
    rhos = ratios.clamp(max=rho_clip)
    traces = continues * (lam * ratios.clamp(max=c_clip))
    deltas = rhos * (rewards + discounts * next_values - values)
    corrections = discounted_sums(deltas, discounts * traces)  # v_t - V(x_t)
    next_targets = next_values.clone()
    next_targets[:-1] += continues[:-1] * corrections[1:]
    advantages = rhos * (rewards + discounts * next_targets - values)
    return advantages, values + corrections
