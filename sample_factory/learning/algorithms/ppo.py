"""Asynchronous proximal policy optimisation (APPO): PPO's losses with V-trace or GAE targets."""

from torch import Tensor

from sample_factory.algo.losses import normalize_advantages, policy_loss, value_loss
from sample_factory.learning.algorithms.algorithm import POLICY, Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.extra_losses import BuiltInAlgorithm
from sample_factory.learning.algorithms.targets import (
    Targets,
    gae_targets,
    normalized_returns,
    unnormalized_values,
    vtrace_targets,
)
from sample_factory.learning.batch import Batch


class PPO(BuiltInAlgorithm):
    """PPO's losses with targets by GAE or V-trace; selected by --algo=APPO."""

    @property
    def fixes_targets(self) -> bool:
        """Whether targets are computed once per batch: True with GAE; False with V-trace, whose targets
        depend on the ratios pi / mu, which change in every SGD step."""
        return not self._flags.with_vtrace

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        return self.targets_of(
            batch, unnormalized_values(self._model, evaluation.unrolled.values), evaluation
        )

    def targets_of(self, batch: Batch, values: Tensor, evaluation: Evaluation) -> Targets:
        """Computes targets from given values, by V-trace if --with_vtrace is set, otherwise by GAE. values:
        [T+1, B], on the scale of `batch.rewards`. To get targets for costs, a subclass passes a batch with
        costs in place of rewards, and predicted costs as values."""
        if self._flags.with_vtrace:
            return vtrace_targets(self._flags, batch, values, evaluation.log_ratios.detach())
        return gae_targets(self._flags, batch, values)

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        flags = self._flags
        valid = minibatch.own
        advantages = normalize_advantages(targets.advantages, valid, total=self._total)
        returns = normalized_returns(self._model, targets)
        values = evaluation.unrolled.values[:-1]
        value = value_loss(values, minibatch.values, returns, flags.ppo_clip_value, valid)
        terms = {
            POLICY: policy_loss(evaluation.log_ratios, advantages, flags.ppo_clip_ratio, valid),
            "value": value * flags.value_loss_coeff,
            **self.extra_losses(minibatch, evaluation),
        }
        return Losses(terms, {"advantages": advantages})

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        ratio = step.evaluation.log_ratios.exp()[step.minibatch.own]
        widest = 1 + self._flags.ppo_clip_ratio
        return {"fraction_clipped": ((ratio > widest) | (ratio < 1 / widest)).float().mean()}
