"""Action-conditional contrastive predictive coding, CPC|A (Guo et al. 2018, arXiv:1811.06407).

A recurrent state b_t that really knows where the agent is can tell, given the actions a_t ... a_{t+k-1}, the
observation k steps ahead from one taken elsewhere. To learn to tell them apart is an auxiliary task that
trains encoder and core where rewards are rare. Here: which steps are compared, and the loss. The networks
are in models/cpc.py.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from sample_factory.algo.losses import masked_mean


class Comparisons(NamedTuple):
    """Which steps of a minibatch [T, B] to compare: S times, K horizons for each, N wrong observations.

    The observation at end[s, k] is to be recognised from what is known at start[s], in every column; `wrong`
    are observations not to be taken for it, as indices into the flattened [T+1, B] of them. All int64.
    """

    start: Tensor  # [S, 1]
    end: Tensor  # [S, K]
    wrong: Tensor  # [S, K, B, N]


def draw_comparisons(
    shape: tuple[int, int],
    forward_steps: int,
    counts: tuple[int, int, int],
    rng: np.random.Generator,
    device: torch.device,
) -> Comparisons:
    """shape: T, B. Horizons are 1 to forward_steps (at most T); times leave room for the longest.

    counts: S, K, N; fewer times or horizons are drawn where there are no more.
    """
    num_steps, num_columns = shape
    num_times, num_horizons, num_wrong = counts
    start = rng.permutation(num_steps - forward_steps + 1)[:num_times, None]
    horizons = np.tile(np.arange(1, forward_steps + 1), (len(start), 1))
    horizons = rng.permuted(horizons, axis=1)[:, :num_horizons]
    wrong = rng.integers((num_steps + 1) * num_columns, size=(*horizons.shape, num_columns, num_wrong))
    return Comparisons(*(torch.from_numpy(x).to(device) for x in (start, start + horizons, wrong)))


class Usable(NamedTuple):
    """bool, on the device of the batch: right [S, K, B], wrong [S, K, B, N]."""

    right: Tensor
    wrong: Tensor


def usable_comparisons(comparisons: Comparisons, valid: Tensor, ended: Tensor) -> Usable:
    """What a comparison may be made of: one unbroken stretch of valid steps, and wrong observations of valid
    steps other than the right one.

    valid, ended: bool [T, B]; ended: the episode ends with this step. The last observation, at T, counts as
    valid: nobody has acted on it yet.
    """
    num_columns = valid.shape[1]
    valid_observation = torch.cat([valid, torch.ones_like(valid[:1])])
    breaks = torch.cat([torch.zeros_like(valid[:1], dtype=torch.int64), (ended | ~valid).cumsum(0)])
    start, end, wrong = comparisons
    right = (breaks[end] == breaks[start]) & valid_observation[end]
    right_index = end.unsqueeze(-1) * num_columns + torch.arange(num_columns, device=valid.device)
    is_other = wrong != right_index.unsqueeze(-1)
    return Usable(right, valid_observation.flatten()[wrong] & is_other & right.unsqueeze(-1))


def contrastive_loss(right_logits: Tensor, wrong_logits: Tensor, usable: Usable) -> Tensor:
    """Binary cross-entropy of telling right from wrong observations: mean over the right ones plus mean over
    the wrong ones; 2 log 2 by guessing, 0 where nothing is usable.

    right_logits [S, K, B], wrong_logits [S, K, B, N]: log-odds that the observation is the right one.
    """
    return masked_mean(softplus(-right_logits), usable.right) + masked_mean(
        softplus(wrong_logits), usable.wrong
    )
