"""Familiarity, and the contrastive loss, of keys of an episodic memory."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sample_factory.algo.losses import masked_mean


def rarity(keys: Tensor, known: Tensor, temperature: float) -> Tensor:
    """Returns minus the logarithm of the familiarity of keys, [N]: 0 for a key that equals all known ones.

    Familiarity is the mean of exp((cos - 1) / temperature) over all known keys, a kernel estimate of how
    often something like it occurs.

    keys: [N, K]. known: [M, K]. Both have rows of length 1; known rows of zeros are like no key.
    """
    similarities = (keys @ known.T - 1) / temperature
    return math.log(len(known)) - torch.logsumexp(similarities, dim=1)


def contrastive_loss(
    queries: Tensor, keys: Tensor, others: Tensor, valid: Tensor, temperature: float
) -> Tensor:
    """InfoNCE of momentum contrast (He et al. 2019, https://arxiv.org/abs/1911.05722, eq. 1).

    Mean over the valid queries [N, K] of -log softmax of the key [N, K] that belongs to it among the
    others [M, K]. All rows have length 1. valid: bool [N].
    """
    right = (queries * keys).sum(dim=1, keepdim=True)
    logits = torch.cat((right, queries @ others.T), dim=1) / temperature
    first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return masked_mean(cross_entropy(logits, first, reduction="none"), valid)
