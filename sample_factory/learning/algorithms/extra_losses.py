"""What built-in algorithms have in common, such as losses for exploration and auxiliary tasks."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.algo.losses import masked_mean
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import Evaluation, SGDStep, evaluation_summaries
from sample_factory.learning.algorithms.cpc_task import cpc_loss, make_cpc
from sample_factory.learning.batch import Batch
from sample_factory.models.action_distributions import ActionDistribution
from sample_factory.models.policy_spec import BuiltPolicy

MAX_SYMMETRIC_KL = 30.0


def exploration_loss(name: str, distribution: ActionDistribution, valid: Tensor) -> Tensor:
    """Returns the --exploration_loss `name`, which keeps a policy from becoming deterministic too early.

    "entropy" is minus the mean entropy. "symmetric_kl" is the mean of (KL(pi || u) + KL(u || pi)) / 2 with
    the uniform distribution u, for discrete actions; it is limited to MAX_SYMMETRIC_KL, since it grows
    without bound as the probability of any action goes to 0.

    distribution: pi, with a batch shape such as [T, B]. valid: bool of that shape, the rows in the mean.
    """
    if name == "entropy":
        return -masked_mean(distribution.entropy(), valid)
    return masked_mean(distribution.symmetric_kl_with_uniform(), valid).clamp(max=MAX_SYMMETRIC_KL)


class BuiltInAlgorithm:
    """Base class of the built-in algorithms: computes the losses of --exploration_loss_coeff, --kl_loss_coeff
    and --use_cpc, and trains on each batch only when it arrives (`earlier_batches` is empty)."""

    def __init__(self, flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator):
        self._flags = flags
        self._model = policy.model
        self._total = policy.total
        self._rng = rng
        self._cpc = make_cpc(policy.model) if flags.use_cpc else None

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return {} if self._cpc is None else {"cpc": self._cpc}

    def set_flags(self, flags: LearningFlags) -> None:
        self._flags = flags

    def earlier_batches(self, batch: Batch) -> Sequence[Batch]:
        return ()

    def extra_losses(self, minibatch: Batch, evaluation: Evaluation) -> dict[str, Tensor]:
        """Returns the weighted losses that all built-in algorithms add, by name; 0 for losses turned off."""
        flags, valid = self._flags, minibatch.own
        zero = torch.zeros((), device=self._model.device)
        terms = {"exploration": zero, "kl": zero, "auxiliary": zero}
        if flags.exploration_loss_coeff != 0:
            loss = exploration_loss(flags.exploration_loss, evaluation.distribution, valid)
            terms["exploration"] = loss * flags.exploration_loss_coeff
        if flags.kl_loss_coeff != 0:
            loss = masked_mean(evaluation.distribution.kl(evaluation.behavior), valid)
            terms["kl"] = loss * flags.kl_loss_coeff
        if self._cpc is not None:
            terms["auxiliary"] = cpc_loss(flags, self._cpc, minibatch, evaluation.unrolled, self._rng)
        return terms

    def after_step(self, version: int) -> None:
        """Does nothing; a subclass may override it to change state after each SGD step, e.g. of a target
        network."""

    @torch.no_grad()
    def summaries(self, step: SGDStep) -> dict[str, float]:
        advantages = step.losses.diagnostics["advantages"][step.minibatch.own]
        numbers = {
            "adv_min": advantages.min(),
            "adv_max": advantages.max(),
            "adv_std": advantages.std(correction=0),
            **self.own_summaries(step),
        }
        return evaluation_summaries(step.minibatch, step.evaluation, numbers)

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        """To be overridden: returns summaries specific to the algorithm, tag -> scalar without a gradient."""
        raise NotImplementedError
