"""The interface between the SGD loop (`Learner`) and the losses that it minimises."""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.targets import Targets
from sample_factory.learning.batch import Batch, unroll
from sample_factory.models.action_distributions import ActionDistribution
from sample_factory.models.actor_critic import NetworkOutput
from sample_factory.models.policy_spec import BuiltPolicy

POLICY = "policy"  # the loss that every algorithm has; epochs end early when it no longer changes


class Evaluation(NamedTuple):
    """Outputs of the network being trained for a batch; differentiable."""

    unrolled: NetworkOutput  # of T+1 steps; values are on the critic's normalised scale
    distribution: ActionDistribution  # pi, [T, B]
    behavior: ActionDistribution  # mu, the policy that acted, [T, B]
    log_ratios: Tensor  # [T, B]: log pi - log mu of the actions

    @property
    def kl(self) -> Tensor:
        """KL(mu || pi) of each step, [T, B]; no gradient."""
        return self.behavior.kl(self.distribution).detach()


def evaluate(policy: BuiltPolicy, batch: Batch) -> Evaluation:
    """Runs the network of `policy` over a batch."""
    unrolled = unroll(policy, batch)
    distribution = policy.model.distribution(unrolled.logits[:-1])
    behavior = policy.model.distribution(batch.logits)
    log_ratios = distribution.log_prob(batch.actions) - batch.log_probs
    return Evaluation(unrolled, distribution, behavior, log_ratios)


def recorded(policy: BuiltPolicy, batch: Batch) -> Evaluation:
    """Returns the evaluation, without a gradient, of a batch in which the current weights have acted.

    Values and logits are the recorded ones. Only V(x_T) is computed, from the last observation alone, so the
    network must have no recurrent state. encodings and beliefs are of x_T only.
    """
    last = {key: tensor[-1:] for key, tensor in batch.obs.items()}
    with torch.no_grad(), torch.autocast(policy.device.type, torch.bfloat16, enabled=policy.autocast):
        end = policy.model.unroll(last, batch.chunk_rnn_states[0])
    unrolled = end._replace(
        logits=torch.cat((batch.logits, end.logits)), values=torch.cat((batch.values, end.values))
    )
    behavior = policy.model.distribution(batch.logits)
    return Evaluation(unrolled, behavior, behavior, torch.zeros_like(batch.log_probs))


class Losses(NamedTuple):
    """Weighted losses of a minibatch by name, POLICY among them. Their sum is minimised.

    diagnostics: what the algorithm's `summaries` needs, by name.
    """

    terms: Mapping[str, Tensor]
    diagnostics: Mapping[str, Any] = {}

    @property
    def total(self) -> Tensor:
        """The sum of all terms, in their order."""
        return functools.reduce(operator.add, self.terms.values())


class SGDStep(NamedTuple):
    """One step of gradient descent, with the data for its summaries."""

    minibatch: Batch
    evaluation: Evaluation
    losses: Losses
    grad_norm: float  # before clipping


class Algorithm(Protocol):
    """Defines the loss. Made in the learner's process by a factory(flags, policy, rng):

    flags: LearningFlags. policy: BuiltPolicy, the network on its device. rng: np.random.Generator for
    whatever is drawn per minibatch; its state is saved with checkpoints.

    For every new batch, the Learner calls `earlier_batches`. For every minibatch, it calls `targets` (or once
    before the first minibatch, see `fixes_targets`), updates the statistics of returns, calls `losses`, makes
    the SGD step, and calls `after_step`. Only `earlier_batches`, `after_step` and `set_flags` may change
    state.

    With --learners_per_policy, each learner gets a share of every minibatch. Losses must then be means over
    the steps where `own` is True, which the Learner weights. Other statistics of a minibatch, such as the
    mean of advantages, must be summed with `policy.total`.
    """

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules beside the policy's network, by their names in checkpoints; the same at every call.

        Their parameters are optimised unless requires_grad is False; the gradient of each module is clipped
        separately. The modules are saved and resumed, and copied by population-based training.
        """

    @property
    def fixes_targets(self) -> bool:
        """Whether all SGD steps on a batch use targets that are computed once, before the first step.

        Otherwise each step computes targets with the current weights.
        """

    def set_flags(self, flags: LearningFlags) -> None:
        """Uses other flags from now on, after population-based training has changed some."""

    def earlier_batches(self, batch: Batch) -> Sequence[Batch]:
        """Returns earlier batches to train on again before this new one; usually none.

        With --learners_per_policy, `batch` is this learner's share; all learners must return equally many.
        """

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        """Returns targets for a batch or minibatch; no gradient must flow through them."""

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        """Returns the losses. Steps where `minibatch.own` is False must have no effect on them."""

    def after_step(self, version: int) -> None:
        """Called after each SGD step, also after a skipped one. version: SGD steps so far, with this one."""

    def summaries(self, step: SGDStep) -> dict[str, float]:
        """Returns values for TensorBoard, in addition to the losses, by tag under train/.

        At least one step of the minibatch is valid.
        """


@torch.no_grad()
def evaluation_summaries(
    minibatch: Batch, evaluation: Evaluation, numbers: Mapping[str, Tensor] | None = None
) -> dict[str, float]:
    """Returns summaries of policy and critic that suit any algorithm, with the tags of v1.

    numbers: the algorithm's own summaries, scalars by tag, which are added.
    """
    valid = minibatch.own
    values = evaluation.unrolled.values[:-1]
    ratio = evaluation.log_ratios.exp()[valid]
    kl = evaluation.behavior.kl(evaluation.distribution)[valid]
    value_change = (values - minibatch.values).abs()[valid]
    of_any = {
        "entropy": evaluation.distribution.entropy()[valid].mean(),
        "value": values[valid].mean(),
        "kl_divergence": kl.mean(),
        "kl_divergence_max": kl.max(),
        "value_delta": value_change.mean(),
        "value_delta_max": value_change.max(),
        "ratio_mean": (1.0 - ratio).abs().mean(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
        "max_abs_logprob": minibatch.log_probs[valid].abs().max(),
    }
    return {tag: float(number) for tag, number in {**of_any, **(numbers or {})}.items()}
