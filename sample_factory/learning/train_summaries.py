"""The train/ numbers of TensorBoard, computed now and then from the last minibatch of an iteration."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sample_factory.learning.batcher import Batch
    from sample_factory.learning.learner import Losses


@torch.no_grad()
def train_summaries(losses: "Losses", minibatch: "Batch", lag: Tensor, clip_ratio: float) -> dict[str, float]:
    """lag: [n] versions between acting and training, of the policy's own steps. Keys are those of v1."""
    valid = minibatch.own
    if not valid.any():
        return {"loss": float(losses.total)}
    ratio = losses.log_ratios.exp()[valid]
    kl = losses.behavior.kl(losses.distribution)[valid]
    advantages = losses.advantages[valid]
    value_change = (losses.values[:-1] - minibatch.values).abs()[valid]
    numbers = {
        "loss": losses.total,
        "policy_loss": losses.policy,
        "value_loss": losses.value,
        "kl_loss": losses.kl,
        "exploration_loss": losses.exploration,
        "auxiliary_loss": losses.auxiliary,
        "entropy": losses.distribution.entropy()[valid].mean(),
        "value": losses.values[:-1][valid].mean(),
        "kl_divergence": kl.mean(),
        "kl_divergence_max": kl.max(),
        "value_delta": value_change.mean(),
        "value_delta_max": value_change.max(),
        "ratio_mean": (1.0 - ratio).abs().mean(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
        "fraction_clipped": ((ratio > 1 + clip_ratio) | (ratio < 1 / (1 + clip_ratio))).float().mean(),
        "adv_min": advantages.min(),
        "adv_max": advantages.max(),
        "adv_std": advantages.std(correction=0),
        "max_abs_logprob": minibatch.log_probs[valid].abs().max(),
        "version_diff_avg": lag.float().mean(),
        "version_diff_min": lag.min(),
        "version_diff_max": lag.max(),
    }
    return {name: float(number) for name, number in numbers.items()}
