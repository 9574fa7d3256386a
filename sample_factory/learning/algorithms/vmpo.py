"""V-MPO: fits the policy to the better half of its samples (Song et al. 2020); see algo/vmpo.py."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.algo.losses import squared_error_loss
from sample_factory.algo.vmpo import (
    sample_weights,
    temperature_loss,
    top_half,
    trust_region_loss,
    weighted_policy_loss,
)
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import POLICY, Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.extra_losses import BuiltInAlgorithm
from sample_factory.learning.algorithms.targets import (
    TargetNetwork,
    Targets,
    gae_targets,
    normalized_returns,
    unnormalized_values,
)
from sample_factory.learning.batch import Batch
from sample_factory.models.action_distributions import CategoricalActions, GaussianActions, MixedActions
from sample_factory.models.policy_spec import BuiltPolicy

TARGET_LOGITS = "target_logits"
TEMPERATURE = "temperature"
# Multipliers at the start, by the parts of the KL divergence, see kl_parts. They and the first temperature
# are from rlpyt's V-MPO, which reached the paper's reward on Ant-v3.
FIRST_DISCRETE = 5.0
FIRST_CONTINUOUS = 1.0
FIRST_TEMPERATURE = 1.0
LEAST = 1e-8  # section 4.2.2
# In the paper, duals have the learning rate of the network (section 4), but its runs have many more steps
# than most runs here. SEED RL (agents/policy_gradient/modules/policy_losses.py) trains its temperature ten
# times as fast.
DUAL_SPEED = 10.0


class Duals(nn.Module):
    """The dual variables of V-MPO: the temperature and the multipliers of the KL limits, positive scalars.

    Each dual is DUAL_SPEED times a parameter. A step of Adam moves a parameter by about the learning rate, so
    it moves a dual DUAL_SPEED times as far.
    """

    def __init__(self, first: Mapping[str, float]):
        """Creates a dual for each name in `first`, with its initial value."""
        super().__init__()
        parameters = {name: nn.Parameter(torch.tensor(value / DUAL_SPEED)) for name, value in first.items()}
        self.parameters_by_name = nn.ParameterDict(parameters)

    def value(self, name: str) -> Tensor:
        """Returns the value of a dual, a differentiable scalar above 0."""
        value: Tensor = DUAL_SPEED * self.parameters_by_name[name]
        return value

    @torch.no_grad()
    def project(self) -> None:
        """Clamps all duals to at least LEAST, so that they stay above 0; called after each SGD step."""
        for parameter in self.parameters():
            parameter.clamp_(min=LEAST / DUAL_SPEED)


class VMPO(BuiltInAlgorithm):
    """V-MPO (Song et al. 2020), with the losses of sections 4.1 and 4.2, bootstrapped returns and no
    importance weights.

    The policy is fitted to the half of each minibatch with the larger advantages. KL limits hold for whole
    actions: for the sum over all discrete components, and for the sum over all continuous dimensions.

    Differences from the paper: the newest policy acts, not the target network. Advantages are on the scale of
    normalised returns, so that the same temperatures suit any scale of rewards (as in rlpyt's V-MPO). Running
    statistics of returns replace PopArt.
    """

    fixes_targets = True  # advantages, returns and the target policy are computed before the first step

    def __init__(self, flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator):
        super().__init__(flags, policy, rng)
        self._target = TargetNetwork(policy)
        layout = policy.model.layout
        first = {TEMPERATURE: FIRST_TEMPERATURE}
        if layout.discrete_actions:
            first["discrete"] = FIRST_DISCRETE
        if layout.box_actions:
            first.update(mean=FIRST_CONTINUOUS, covariance=FIRST_CONTINUOUS)
        self._duals = Duals(first).to(policy.device)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return {"target": self._target.module, "duals": self._duals, **super().modules}

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        values = unnormalized_values(self._model, evaluation.unrolled.values)
        targets = gae_targets(self._flags, batch, values)
        return targets._replace(extra={TARGET_LOGITS: self._target.logits(batch)})

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        valid = minibatch.own
        advantages = targets.advantages
        normalizer = self._model.returns_normalizer
        if normalizer is not None:
            advantages = advantages / (normalizer.variance + normalizer.eps).sqrt().float()
        top = top_half(advantages, valid)
        temperature = self._duals.value(TEMPERATURE)
        weights = sample_weights(advantages, temperature, top)
        log_probs = evaluation.distribution.log_prob(minibatch.actions)
        old = self._model.distribution(targets.extra[TARGET_LOGITS])
        kls = kl_parts(old, evaluation.distribution)
        value = squared_error_loss(
            evaluation.unrolled.values[:-1], normalized_returns(self._model, targets), valid
        )
        terms = {
            POLICY: weighted_policy_loss(log_probs, weights),
            "value": value * self._flags.value_loss_coeff,
            TEMPERATURE: temperature_loss(advantages, temperature, self._flags.vmpo_temperature_kl, top),
            **{f"{part}_kl": self._trust_region_loss(part, kl, valid) for part, kl in kls.items()},
            **self.extra_losses(minibatch, evaluation),
        }
        detached = {part: kl.detach() for part, kl in kls.items()}
        return Losses(terms, {"kls": detached, "advantages": advantages})

    def _trust_region_loss(self, part: str, kl: Tensor, valid: Tensor) -> Tensor:
        flags = self._flags
        limits = {
            "discrete": flags.vmpo_policy_kl,
            "mean": flags.vmpo_mean_kl,
            "covariance": flags.vmpo_covariance_kl,
        }
        return trust_region_loss(kl, self._duals.value(part), limits[part], valid)

    def after_step(self, version: int) -> None:
        """Keeps the duals positive, and updates the target network every --vmpo_target_period SGD steps."""
        self._duals.project()
        self._target.after_step(version, self._flags.vmpo_target_period)

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        numbers = {TEMPERATURE: self._duals.value(TEMPERATURE)}
        for part, kl in step.losses.diagnostics["kls"].items():
            numbers[f"{part}_multiplier"] = self._duals.value(part)
            numbers[f"{part}_target_kl"] = kl[step.minibatch.own].mean()
        return numbers


def kl_parts(old: Any, new: Any) -> dict[str, Tensor]:
    """Splits KL(old || new) of two action distributions into parts by name, each of the batch shape [...].

    "discrete" is the divergence of all discrete actions. "mean" and "covariance" are for continuous actions:
    KL(old || q), where q is `old` with only the mean, or only the covariance, of `new` (Song et al. 2020,
    section 4.2.2). old, new: distributions of the same class over the same actions.
    """
    if isinstance(old, MixedActions):
        return {**kl_parts(old.discrete, new.discrete), **kl_parts(old.box, new.box)}
    if isinstance(old, CategoricalActions):
        return {"discrete": old.kl(new)}
    return {
        "mean": old.kl(GaussianActions(new.means, old.log_stds)),
        "covariance": old.kl(GaussianActions(old.means, new.log_stds)),
    }
