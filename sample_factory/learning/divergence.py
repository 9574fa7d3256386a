"""How far the policies that acted on other machines have fallen behind the one that is trained."""

import torch
from torch import Tensor

from sample_factory.exchange.channels import NO_VERSION


def newest_diverged(
    divergences: Tensor, versions: Tensor, own: Tensor, threshold: float, min_samples: int
) -> int:
    """Returns the newest version whose mean divergence is above `threshold`; NO_VERSION if there is none.

    divergences: KL(mu || pi) of each sample in nats, float32; versions: of the policy mu that acted; own: the
    samples that count, bool; all [T, B]. min_samples: versions with fewer samples are ignored.

    This is the measure of adaptive policy synchronisation (ClusterEnv, https://arxiv.org/abs/2507.10990).
    Here the learner computes it: it has both policies, so that no machine needs the newest weights to find
    out that its own are old.
    """
    found, of_sample, counts = versions[own].unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(found), device=own.device).index_add(0, of_sample, divergences[own])
    diverged = found[(sums > threshold * counts) & (counts >= min_samples)]
    return int(diverged.max()) if len(diverged) else NO_VERSION
