"""IMPACT: a clipped surrogate against a target network (Luo et al. 2020, https://arxiv.org/abs/1912.00167)."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, nn

from sample_factory.algo.losses import (
    normalize_advantages,
    policy_loss,
    squared_error_loss,
    truncated_log_ratios,
)
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import POLICY, Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.extra_losses import BuiltInAlgorithm
from sample_factory.learning.algorithms.targets import (
    TargetNetwork,
    Targets,
    normalized_returns,
    unnormalized_values,
    vtrace_targets,
)
from sample_factory.learning.batch import Batch
from sample_factory.models.policy_spec import BuiltPolicy

TARGET_LOG_PROBS = "target_log_probs"


class CircularBuffer:
    """Keeps up to N batches on the device, so that each is trained on K times (IMPACT, section 3.2).

    A batch is trained on when it arrives, and K - 1 times more, spread evenly over the arrivals of the next N
    - 1 batches. In the paper, the learner takes a batch from the buffer whenever there is no new batch; here,
    each batch is used exactly K times, however fast sampling and learning are. With K = 1, no batch is kept.
    """

    def __init__(self, num_batches: int, num_uses: int):
        """Starts empty. num_batches: N, the size of the buffer. num_uses: K, how often each batch is trained
        on."""
        later = range(num_uses - 1, 0, -1)
        self._ages = [round(use * (num_batches - 1) / (num_uses - 1)) for use in later]  # in batches
        self._batches: deque[Batch] = deque(maxlen=max(self._ages, default=-1) + 1)  # the newest one first

    def add(self, batch: Batch) -> list[Batch]:
        """Adds a new batch. Returns the earlier batches to train on again before it, the oldest one first."""
        self._batches.appendleft(batch)
        return [self._batches[age] for age in self._ages if age < len(self._batches)]


class IMPACT(BuiltInAlgorithm):
    """IMPACT: trains on each batch several times, with a surrogate clipped against a slow target network.

    V-trace corrects from the policy that acted to the target network, with the values of the current network
    (section 3.1), as in RLlib (rllib/algorithms/appo/torch/appo_torch_learner.py). The surrogate is that of
    `PPO`, with its symmetric interval and normalised advantages, but with the ratio of section 3.1. The value
    loss is 1/2 (v - V)^2. --vtrace_lambda is 1 by default, as in RLlib. The paper's loss on the KL divergence
    from the target network, for continuous actions, is left out, as in RLlib's defaults.

    The buffer of batches is not saved in checkpoints.
    """

    fixes_targets = False  # every SGD step changes the values, and some update the target network

    def __init__(self, flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator):
        super().__init__(flags, policy, rng)
        self._buffer = CircularBuffer(flags.impact_buffer_batches, flags.impact_uses)
        self._target = TargetNetwork(policy)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return {"target": self._target.module, **super().modules}

    def earlier_batches(self, batch: Batch) -> Sequence[Batch]:
        """Adds the batch to the circular buffer, and returns the batches that are due to be used again."""
        return self._buffer.add(batch)

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        target_log_probs = self._model.distribution(self._target.logits(batch)).log_prob(batch.actions)
        values = unnormalized_values(self._model, evaluation.unrolled.values)
        targets = vtrace_targets(self._flags, batch, values, target_log_probs - batch.log_probs)
        return targets._replace(extra={TARGET_LOG_PROBS: target_log_probs})

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        flags = self._flags
        valid = minibatch.own
        advantages = normalize_advantages(targets.advantages, valid, total=self._total)
        log_ratios = truncated_log_ratios(
            evaluation.distribution.log_prob(minibatch.actions),
            targets.extra[TARGET_LOG_PROBS],
            minibatch.log_probs,
            flags.impact_rho,
        )
        returns = normalized_returns(self._model, targets)
        value = squared_error_loss(evaluation.unrolled.values[:-1], returns, valid)
        terms = {
            POLICY: policy_loss(log_ratios, advantages, flags.ppo_clip_ratio, valid),
            "value": value * flags.value_loss_coeff,
            **self.extra_losses(minibatch, evaluation),
        }
        return Losses(terms, {"advantages": advantages, "log_ratios": log_ratios.detach()})

    def after_step(self, version: int) -> None:
        """Updates the target network every `target_period(flags)` SGD steps."""
        self._target.after_step(version, target_period(self._flags))

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        ratio = step.losses.diagnostics["log_ratios"][step.minibatch.own].exp()
        widest = 1 + self._flags.ppo_clip_ratio
        return {
            "fraction_clipped": ((ratio > widest) | (ratio < 1 / widest)).float().mean(),
            "target_ratio_min": ratio.min(),
            "target_ratio_max": ratio.max(),
        }


def target_period(flags: LearningFlags) -> int:
    """Returns the number of SGD steps between updates of the target network.

    If --impact_target_period is 0, this is the paper's unit (section 4.1.1): the SGD steps on N * K batches,
    one pass through the circular buffer. In the paper, periods of 1/8 to 4 units gave similar results.
    """
    if flags.impact_target_period:
        return flags.impact_target_period
    steps_of_batch = flags.ppo_epochs * flags.num_batches_per_iteration
    return flags.impact_buffer_batches * flags.impact_uses * steps_of_batch
