"""Asynchronous proximal policy optimisation (APPO): PPO's losses with V-trace or GAE targets."""

from torch import Tensor

from sample_factory.algo.losses import decouple, normalize_advantages, policy_loss, value_loss
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

PROXIMAL = "proximal_log_ratios"  # log pi_prox - log mu


class PPO(BuiltInAlgorithm):
    """An `Algorithm`; the value of --algo is APPO.

    With --ppo_decoupled, pi_prox is the policy before the first SGD step on a batch. V-trace then corrects
    from the policy that acted to pi_prox. Its factor rho_t is left out of the advantages, and weights them
    after they are normalised, see `decouple`. If pi_prox has acted, the weights are 1.
    """

    @property
    def fixes_targets(self) -> bool:
        """True with GAE or --ppo_decoupled; otherwise, V-trace depends on the ratios, which every SGD step
        changes.
        """
        return self._flags.ppo_decoupled or not self._flags.with_vtrace

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        flags = self._flags
        values = unnormalized_values(self._model, evaluation.unrolled.values)
        log_ratios = evaluation.log_ratios.detach()
        if flags.with_vtrace:
            targets = vtrace_targets(flags, batch, values, log_ratios, weighted=not flags.ppo_decoupled)
        else:
            targets = gae_targets(flags, batch, values)
        return targets._replace(extra={PROXIMAL: log_ratios}) if flags.ppo_decoupled else targets

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        flags = self._flags
        valid = minibatch.own
        advantages = normalize_advantages(targets.advantages, valid, total=self._total)
        returns = normalized_returns(self._model, targets)
        log_ratios = evaluation.log_ratios
        weighted = advantages
        if flags.ppo_decoupled:
            log_ratios, weights = decouple(log_ratios, targets.extra[PROXIMAL], flags.vtrace_rho)
            weighted = advantages * weights
        values = evaluation.unrolled.values[:-1]
        value = value_loss(values, minibatch.values, returns, flags.ppo_clip_value, valid)
        terms = {
            POLICY: policy_loss(log_ratios, weighted, flags.ppo_clip_ratio, valid),
            "value": value * flags.value_loss_coeff,
            **self.extra_losses(minibatch, evaluation),
        }
        return Losses(terms, {"advantages": advantages, "log_ratios": log_ratios.detach()})

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        ratio = step.losses.diagnostics["log_ratios"][step.minibatch.own].exp()
        widest = 1 + self._flags.ppo_clip_ratio
        return {"fraction_clipped": ((ratio > widest) | (ratio < 1 / widest)).float().mean()}
