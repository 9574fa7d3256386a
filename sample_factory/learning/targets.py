"""From a batch and the critic's outputs to what policy and critic are trained towards."""

from typing import NamedTuple

import torch
from torch import Tensor

from sample_factory.algo.gae import gae
from sample_factory.algo.vtrace import vtrace
from sample_factory.config.sections import LearningFlags
from sample_factory.learning.batcher import Batch


class Targets(NamedTuple):
    """advantages [T, B], not normalised yet; returns [T, B], on the scale of rewards."""

    advantages: Tensor
    returns: Tensor


class Transitions(NamedTuple):
    """What V-trace and GAE are computed from, each [T, B] float32; see `algo.vtrace.vtrace`."""

    values: Tensor
    next_values: Tensor
    rewards: Tensor
    discounts: Tensor
    continues: Tensor


def vtrace_targets(flags: LearningFlags, batch: Batch, values: Tensor, log_ratios: Tensor) -> Targets:
    """values: [T+1, B], on the scale of rewards, the last to bootstrap from; log_ratios: [T, B]."""
    log_ratios = torch.where(batch.own, log_ratios, 0.0)
    result = vtrace(
        log_ratios, *transitions(flags, batch, values), rho_clip=flags.vtrace_rho, c_clip=flags.vtrace_c
    )
    return Targets(result.advantages, result.targets)


def gae_targets(flags: LearningFlags, batch: Batch, values: Tensor) -> Targets:
    """values: [T+1, B], on the scale of rewards."""
    result = gae(*transitions(flags, batch, values), flags.gae_lambda)
    return Targets(result.advantages, result.targets)


def transitions(flags: LearningFlags, batch: Batch, values: Tensor) -> Transitions:
    """values: [T+1, B], on the scale of rewards."""
    v_t, v_tp1 = values[:-1], values[1:]
    terminated, truncated = batch.terminated, batch.truncated
    if not flags.value_bootstrap:
        terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
    next_is_valid = torch.cat([batch.own[1:], torch.ones_like(batch.own[:1])])
    # The observation after a truncation is the next episode's; the state's own value is one step off. It also
    # stands in where an agent becomes inactive, since values of inactive steps are never trained.
    next_values = torch.where(truncated | ~next_is_valid, v_t, v_tp1)
    discounts = flags.gamma * (~terminated).float()
    continues = (~(terminated | truncated) & next_is_valid).float()
    # A NaN would reach earlier steps even where its weight is 0.
    rewards = torch.where(batch.own, batch.rewards, 0.0)
    return Transitions(v_t, next_values, rewards, discounts, continues)
