"""How far the policies that acted on other machines have fallen behind the one that is trained."""

import torch

from sample_factory.exchange.channels import NO_VERSION
from sample_factory.learning.algorithms.algorithm import SGDStep


@torch.no_grad()
def newest_diverged(step: SGDStep, threshold: float, min_samples: int) -> int:
    """Returns the newest version whose mean KL(mu || pi) in a minibatch is above `threshold`, in nats.

    mu: the policy of that version, which acted; pi: the policy that is trained. This is the measure of
    adaptive policy synchronisation (ClusterEnv, https://arxiv.org/abs/2507.10990), computed by the learner,
    which has both policies, so that no machine needs new weights to find out that its own are old.
    min_samples: versions with fewer samples are ignored. NO_VERSION if there is none.
    """
    own = step.minibatch.own
    divergences = step.evaluation.behavior.kl(step.evaluation.distribution)[own]
    versions, of_sample, counts = step.minibatch.versions[own].unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(versions), device=own.device).index_add(0, of_sample, divergences)
    diverged = versions[(sums > threshold * counts) & (counts >= min_samples)]
    return int(diverged.max()) if len(diverged) else NO_VERSION
