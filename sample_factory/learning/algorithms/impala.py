"""IMPALA: an actor-critic with V-trace targets (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561)."""

from torch import Tensor

from sample_factory.algo.losses import policy_gradient_loss, squared_error_loss
from sample_factory.learning.algorithms.algorithm import POLICY, Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.extra_losses import BuiltInAlgorithm
from sample_factory.learning.algorithms.targets import (
    Targets,
    normalized_returns,
    unnormalized_values,
    vtrace_targets,
)
from sample_factory.learning.batch import Batch


class IMPALA(BuiltInAlgorithm):
    """IMPALA (Espeholt et al. 2018), with the gradient of section 4.2: rho_t (r_t + gamma v_{t+1} - V(x_t))
    grad log pi(a_t|x_t).

    As in the paper and in TorchBeast, losses are sums over a minibatch, not means. Each loss is computed as
    --batch_size times the mean over valid steps, so that masked steps do not make the SGD step smaller. The
    value loss is 1/2 (v_t - V(x_t))^2.
    """

    fixes_targets = False  # V-trace depends on the importance ratios, which every SGD step changes

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        values = unnormalized_values(self._model, evaluation.unrolled.values)
        return vtrace_targets(self._flags, batch, values, evaluation.log_ratios.detach())

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        valid = minibatch.own
        log_probs = evaluation.distribution.log_prob(minibatch.actions)
        values = evaluation.unrolled.values[:-1]
        value = squared_error_loss(values, normalized_returns(self._model, targets), valid)
        means = {
            POLICY: policy_gradient_loss(log_probs, targets.advantages, valid),
            "value": value * self._flags.value_loss_coeff,
            **self.extra_losses(minibatch, evaluation),
        }
        sums = {name: mean * self._flags.batch_size for name, mean in means.items()}
        return Losses(sums, {"advantages": targets.advantages})

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        ratio = step.evaluation.log_ratios.exp()[step.minibatch.own]
        return {"fraction_truncated": (ratio > self._flags.vtrace_rho).float().mean()}
