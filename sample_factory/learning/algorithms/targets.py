"""Targets of policy and critic by V-trace or GAE, from a batch and the critic's values; target networks."""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.algo.advantages import gae, vtrace
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.batch import Batch, unroll
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.policy_spec import BuiltPolicy


class Targets(NamedTuple):
    """Targets of policy and critic; no gradient flows through them. T steps of B trajectories, float32.

    For example `Targets(advantages, advantages + values)`.

    Attributes:
        advantages: [T, B], not normalised.
        returns: [T, B], on the scale of rewards.
        extra: Name -> a further target of the algorithm, [T or T+1, B, ...].
    """

    advantages: Tensor
    returns: Tensor
    extra: Mapping[str, Tensor] = {}

    def select(self, columns: np.ndarray) -> "Targets":
        """Selects the targets of some trajectories.

        Args:
            columns: Indices of the trajectories, [n] int64.

        Returns:
            Targets with n columns, [T, n].
        """
        on_device = torch.from_numpy(columns).to(self.returns.device)
        extra = {name: tensor.index_select(1, on_device) for name, tensor in self.extra.items()}
        advantages = self.advantages.index_select(1, on_device)
        return Targets(advantages, self.returns.index_select(1, on_device), extra)


def unnormalized_values(model: ActorCritic, values: Tensor) -> Tensor:
    """Converts predictions of the critic from its normalised scale to the scale of rewards. values: float32,
    any shape. The result has the same shape and no gradient."""
    values = values.detach()
    return values if model.returns_normalizer is None else model.returns_normalizer.denormalize(values)


def normalized_returns(model: ActorCritic, targets: Targets) -> Tensor:
    """Returns the targets' returns on the critic's normalised scale, [T, B]."""
    normalizer = model.returns_normalizer
    return targets.returns if normalizer is None else normalizer.normalize(targets.returns)


def vtrace_targets(flags: LearningFlags, batch: Batch, values: Tensor, log_ratios: Tensor) -> Targets:
    """Computes advantages and returns by V-trace. values: [T+1, B], on the scale of rewards; the last row is
    for bootstrapping. log_ratios: [T, B], log pi - log mu of the actions."""
    log_ratios = torch.where(batch.own, log_ratios, 0.0)
    result = vtrace(
        log_ratios,
        *transitions(flags, batch, values),
        rho_clip=flags.vtrace_rho,
        c_clip=flags.vtrace_c,
        lam=flags.vtrace_lambda,
    )
    return Targets(*result)


def gae_targets(flags: LearningFlags, batch: Batch, values: Tensor) -> Targets:
    """Computes advantages by GAE, and TD(lambda) returns. values: [T+1, B], on the scale of rewards; the last
    row is for bootstrapping."""
    return Targets(*gae(*transitions(flags, batch, values), flags.gae_lambda))


def transitions(
    flags: LearningFlags, batch: Batch, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns the arguments of `gae` and `vtrace` in algo/advantages.py, each [T, B]: values, next_values,
    rewards, discounts, continues.

    values: [T+1, B], on the scale of rewards. After a truncation and before a step that is not trained on,
        V(x_t) stands in for V(x_{t+1}). Rewards of steps that are not trained on are 0.
    """
    v_t = values[:-1]
    v_tp1 = values[1:]
    terminated = batch.terminated
    truncated = batch.truncated
    if not flags.value_bootstrap:
        terminated = terminated | truncated
        truncated = torch.zeros_like(truncated)
    next_is_valid = torch.cat([batch.own[1:], batch.active_at_end])
    # After a truncation, the next observation belongs to the next episode, so V(x_t), one step off, takes the
    # place of V(x_{t+1}). The same where an agent becomes inactive, as the critic is not trained there.
    next_values = torch.where(truncated | ~next_is_valid, v_t, v_tp1)
    discounts = flags.gamma * (~terminated).float()
    continues = (~(terminated | truncated) & next_is_valid).float()
    # A NaN would reach earlier steps even where its weight is 0.
    rewards = torch.where(batch.own, batch.rewards, 0.0)
    return v_t, next_values, rewards, discounts, continues


class TargetNetwork:
    """Keeps a copy of a policy's network as it was after an earlier SGD step. The attribute `module` is the
    copy; an algorithm must list it in its `modules`, so that checkpoints contain it."""

    def __init__(self, policy: BuiltPolicy):
        self._online = policy.model
        self.module = copy.deepcopy(policy.model).requires_grad_(False)
        self._policy = policy._replace(model=self.module)

    @torch.no_grad()
    def logits(self, batch: Batch) -> Tensor:
        """Returns the target network's masked logits for a batch, [T, B, L], without a gradient."""
        return unroll(self._policy, batch).logits[:-1]

    def after_step(self, version: int, period: int) -> None:
        """Copies the policy's weights and normalisers if `version` is a multiple of `period`; call it after
        each SGD step. version: number of SGD steps so far."""
        if version % period == 0:
            self.module.load_state_dict(self._online.state_dict())
