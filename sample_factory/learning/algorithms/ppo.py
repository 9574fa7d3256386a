"""Asynchronous proximal policy optimisation (APPO): PPO's losses with V-trace or GAE targets."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.algo.losses import (
    EXPLORATION_LOSSES,
    kl_loss,
    normalize_advantages,
    policy_loss,
    value_loss,
)
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import (
    POLICY,
    Evaluation,
    Losses,
    SGDStep,
    evaluation_summaries,
)
from sample_factory.learning.algorithms.cpc_task import cpc_loss, make_cpc
from sample_factory.learning.algorithms.targets import Targets, gae_targets, vtrace_targets
from sample_factory.learning.batch import Batch
from sample_factory.models.policy_spec import BuiltPolicy


class Diagnostics(NamedTuple):
    """Values for PPO's summaries."""

    advantages: Tensor  # [T, B], normalised


class PPO:
    """An `Algorithm`; the value of --algo is APPO."""

    def __init__(self, flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator):
        self._flags = flags
        self._model = policy.model
        self._device = policy.device
        self._total = policy.total
        self._rng = rng
        self._cpc = make_cpc(policy.model) if flags.use_cpc else None

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return {} if self._cpc is None else {"cpc": self._cpc}

    @property
    def fixes_targets(self) -> bool:
        """GAE keeps the values before the first step. V-trace follows the ratios, which steps change."""
        return not self._flags.with_vtrace

    def set_flags(self, flags: LearningFlags) -> None:
        self._flags = flags

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        values = evaluation.unrolled.values.detach()
        if self._model.returns_normalizer is not None:
            values = self._model.returns_normalizer.denormalize(values)
        if self._flags.with_vtrace:
            return vtrace_targets(self._flags, batch, values, evaluation.log_ratios.detach())
        return gae_targets(self._flags, batch, values)

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        flags = self._flags
        valid = minibatch.own
        advantages = normalize_advantages(targets.advantages, valid, total=self._total)
        returns = targets.returns
        if self._model.returns_normalizer is not None:
            returns = self._model.returns_normalizer.normalize(returns)
        values = evaluation.unrolled.values[:-1]
        value = value_loss(values, minibatch.values, returns, flags.ppo_clip_value, valid)
        terms = {
            POLICY: policy_loss(evaluation.log_ratios, advantages, flags.ppo_clip_ratio, valid),
            "value": value * flags.value_loss_coeff,
            "exploration": self._exploration_loss(evaluation, valid),
            "kl": self._kl_loss(evaluation, valid),
            "auxiliary": self._auxiliary_loss(minibatch, evaluation),
        }
        return Losses(terms, Diagnostics(advantages))

    def _exploration_loss(self, evaluation: Evaluation, valid: Tensor) -> Tensor:
        flags = self._flags
        if flags.exploration_loss_coeff == 0:
            return torch.zeros((), device=self._device)
        loss = EXPLORATION_LOSSES[flags.exploration_loss](evaluation.distribution, valid)
        return loss * flags.exploration_loss_coeff

    def _kl_loss(self, evaluation: Evaluation, valid: Tensor) -> Tensor:
        if self._flags.kl_loss_coeff == 0:
            return torch.zeros((), device=self._device)
        loss = kl_loss(evaluation.distribution, evaluation.behavior, valid)
        return loss * self._flags.kl_loss_coeff

    def _auxiliary_loss(self, minibatch: Batch, evaluation: Evaluation) -> Tensor:
        if self._cpc is None:
            return torch.zeros((), device=self._device)
        return cpc_loss(self._flags, self._cpc, minibatch, evaluation.unrolled, self._rng)

    def after_step(self, version: int) -> None:
        """Does nothing."""

    @torch.no_grad()
    def summaries(self, step: SGDStep) -> dict[str, float]:
        assert isinstance(step.losses.diagnostics, Diagnostics)
        valid = step.minibatch.own
        advantages = step.losses.diagnostics.advantages[valid]
        ratio = step.evaluation.log_ratios.exp()[valid]
        widest = 1 + self._flags.ppo_clip_ratio
        numbers = {
            "fraction_clipped": ((ratio > widest) | (ratio < 1 / widest)).float().mean(),
            "adv_min": advantages.min(),
            "adv_max": advantages.max(),
            "adv_std": advantages.std(correction=0),
        }
        own = {name: float(number) for name, number in numbers.items()}
        return {**evaluation_summaries(step.minibatch, step.evaluation), **own}
