"""Action-conditional contrastive predictive coding, CPC|A (Guo et al. 2018, arXiv:1811.06407).

From a recurrent state b_t that contains where the agent is, and the actions a_t ... a_{t+k-1}, a classifier
can recognise the observation k steps ahead among observations of other steps. Learning this is an auxiliary
task that trains encoder and core where rewards are rare. This module chooses the steps to compare and has the
loss; the networks are in models/cpc.py.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from sample_factory.algo.losses import masked_mean


class Comparisons(NamedTuple):
    """Steps of a minibatch [T, B] to compare: S start steps, K horizons for each, N wrong observations.

    In every column, the observation at end[s, k] is to be recognised from the state at start[s]. `wrong` are
    observations to reject, as indices into the flattened [T+1, B] of all. All int64.
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
    """Draws start steps, horizons and wrong observations at random.

    shape: T, B. Horizons are 1 to forward_steps, which is at most T; start steps leave room for the longest.
    counts: S, K, N; fewer start steps or horizons are drawn if there are not as many.
    """
    num_steps, num_columns = shape
    num_starts, num_horizons, num_wrong = counts
    start = rng.permutation(num_steps - forward_steps + 1)[:num_starts, None]
    horizons = np.tile(np.arange(1, forward_steps + 1), (len(start), 1))
    horizons = rng.permuted(horizons, axis=1)[:, :num_horizons]
    wrong = rng.integers((num_steps + 1) * num_columns, size=(*horizons.shape, num_columns, num_wrong))
    return Comparisons(*(torch.from_numpy(x).to(device) for x in (start, start + horizons, wrong)))


class Usable(NamedTuple):
    """Comparisons that may be made, bool, on the device of the batch: right [S, K, B], wrong [S, K, B, N]."""

    right: Tensor
    wrong: Tensor


def usable_comparisons(comparisons: Comparisons, valid: Tensor, ended: Tensor) -> Usable:
    """Returns the comparisons whose steps are all valid and of one episode.

    Wrong observations have to be of valid steps other than the right one.
    valid, ended: bool [T, B]; ended: the episode ends with this step. The last observation, at T, counts as
    valid: no agent has acted on it yet.
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
    """Binary cross-entropy of the classifier: mean over right observations plus mean over wrong ones.

    Guessing gives 2 log 2; it is 0 where no comparison is usable.
    right_logits [S, K, B], wrong_logits [S, K, B, N]: log-odds that the observation is the right one.
    """
    return masked_mean(softplus(-right_logits), usable.right) + masked_mean(
        softplus(wrong_logits), usable.wrong
    )
