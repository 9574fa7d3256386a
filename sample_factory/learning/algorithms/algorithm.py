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
    """The trained network's outputs for a batch, with gradients, from which losses are computed.

    For example `-(evaluation.log_ratios * targets.advantages)[minibatch.own].mean()`.

    Attributes:
        unrolled: Output of the network for T+1 steps; values are on the critic's normalised scale.
        distribution: Distribution pi of the policy over actions, [T, B].
        behavior: Distribution mu of the policy that acted, [T, B].
        log_ratios: [T, B]: log pi - log mu of the actions.
    """

    unrolled: NetworkOutput
    distribution: ActionDistribution
    behavior: ActionDistribution
    log_ratios: Tensor

    @property
    def kl(self) -> Tensor:
        """KL(mu || pi) of each step, [T, B], without a gradient."""
        return self.behavior.kl(self.distribution).detach()


def evaluate(policy: BuiltPolicy, batch: Batch) -> Evaluation:
    """Runs the network of `policy` over a batch, with gradients. Returns its outputs, the distributions of
    this policy and of the policy that acted, and the log-ratios of the actions."""
    unrolled = unroll(policy, batch)
    distribution = policy.model.distribution(unrolled.logits[:-1])
    behavior = policy.model.distribution(batch.logits)
    log_ratios = distribution.log_prob(batch.actions) - batch.log_probs
    return Evaluation(unrolled, distribution, behavior, log_ratios)


def recorded(policy: BuiltPolicy, batch: Batch) -> Evaluation:
    """Returns the evaluation of a batch in which only the current weights acted, without a gradient.

    Takes values and logits from the batch, where they were recorded, instead of computing them. Only V(x_T)
    is computed, from the last observation alone, so the network must have no recurrent state. Encodings and
    beliefs in the output are those of x_T only.
    """
    last = {key: tensor[-1:] for key, tensor in batch.obs.items()}
    with torch.no_grad(), torch.autocast(policy.device.type, torch.bfloat16, enabled=policy.autocast):
        end = policy.model.unroll(last, batch.chunk_rnn_states[0])
    unrolled = end._replace(
        logits=torch.cat((batch.logits, end.logits)), values=torch.cat((batch.values, end.values))
    )
    behavior = policy.model.distribution(batch.logits)
    return Evaluation(unrolled, behavior, behavior, torch.zeros_like(batch.log_probs))


def relative_to_current(batch: Batch, evaluation: Evaluation) -> Batch:
    """Returns a batch with the outputs of the evaluated policy in place of those of the policy that acted.

    Ratios, KL divergences and the clipping of values are then relative to the policy before the first SGD
    step on the batch, the proximal policy of decoupled PPO (Hilton et al. 2021,
    https://arxiv.org/abs/2110.00641). Otherwise the steps since the policy acted would count too, and use up
    what --ppo_clip_ratio and --lr_schedule allow. Unlike there, the actions are not weighted by the ratio of
    proximal and acting policy.
    """
    return batch._replace(
        log_probs=batch.log_probs + evaluation.log_ratios,
        values=evaluation.unrolled.values[:-1],
        logits=evaluation.unrolled.logits[:-1],
    )


class Losses(NamedTuple):
    """Losses of a minibatch, already weighted; the Learner minimises their sum.

    For example `Losses({"policy": policy_loss, "value": 0.5 * value_loss})`.

    Attributes:
        terms: Name -> loss, a scalar with a gradient; "policy" must be among them.
        diagnostics: Name -> whatever the algorithm's `summaries` needs.
    """

    terms: Mapping[str, Tensor]
    diagnostics: Mapping[str, Any] = {}

    @property
    def total(self) -> Tensor:
        """Sum of all terms, in their order."""
        return functools.reduce(operator.add, self.terms.values())


class SGDStep(NamedTuple):
    """Describes a finished SGD step for `Algorithm.summaries`. grad_norm: norm of the gradient before
    clipping."""

    minibatch: Batch
    evaluation: Evaluation
    losses: Losses
    grad_norm: float


class Algorithm(Protocol):
    """Defines the loss: targets, losses and modules of a learning algorithm, called by the Learner.

    For example, PPO with a further loss:

        class SmallValues(PPO):
            def losses(self, minibatch, evaluation, targets):
                losses = super().losses(minibatch, evaluation, targets)
                values = evaluation.unrolled.values[:-1][minibatch.own]
                return losses._replace(terms={**losses.terms, "size": 0.01 * (values**2).mean()})

    An algorithm is made in the learner's process by the factory(flags, policy, rng) that `register_algorithm`
    has registered: `flags` are LearningFlags; `policy` is a BuiltPolicy, the network on its device; `rng` is
    a np.random.Generator for random choices in a minibatch, whose state is saved in checkpoints.

    For every new batch, the Learner calls `earlier_batches`. For every minibatch, it calls `targets` (or once
    before the first minibatch, see `fixes_targets`), updates the statistics of returns, calls `losses`, makes
    the SGD step, and calls `after_step`. Only `earlier_batches`, `after_step` and `set_flags` may change
    state.

    With --learners_per_policy, each learner gets a share of every minibatch. Losses must then be means over
    the steps where `Batch.own` is True; the Learner weights them by the number of these steps. Other
    statistics of a minibatch, such as the mean of advantages, must be summed with `policy.total`.
    """

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules beside the policy's network, by name in checkpoints; the same at every call.

        Parameters of the modules are optimised unless requires_grad is False; the gradient of each module is
        clipped separately. The modules are saved and resumed, and copied by population-based training.
        """

    @property
    def fixes_targets(self) -> bool:
        """Whether all SGD steps on a batch use targets that are computed once, before the first step.

        Otherwise each step computes targets with the current weights.
        """

    def set_flags(self, flags: LearningFlags) -> None:
        """Replaces the flags, after population-based training has changed some.

        Args:
            flags: All flags of learning from now on.
        """

    def earlier_batches(self, batch: Batch) -> Sequence[Batch]:
        """Chooses earlier batches to train on again before a new batch.

        Args:
            batch: The new batch; with --learners_per_policy, this learner's share.

        Returns:
            Earlier batches, usually none. All learners of a policy must return the same number.
        """

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        """Computes the targets of policy and critic for a batch or minibatch.

        Args:
            batch: Trajectories [T, B].
            evaluation: Outputs of the network for the batch.

        Returns:
            Targets, through which no gradient may flow.
        """

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        """Computes the losses of a minibatch.

        Args:
            minibatch: Trajectories [T, B].
            evaluation: Outputs of the network for the minibatch, with gradients.
            targets: What `targets` returned for these trajectories.

        Returns:
            Losses, which steps where `minibatch.own` is False must not affect.
        """

    def after_step(self, version: int) -> None:
        """Called after each SGD step, also after a skipped one, for example to update a target network.

        Args:
            version: Number of SGD steps so far, including this one.
        """

    def summaries(self, step: SGDStep) -> dict[str, float]:
        """Summarises an SGD step for TensorBoard.

        Args:
            step: The SGD step; at least one sample of its minibatch is valid.

        Returns:
            Tag under train/ -> number, in addition to the losses.
        """


@torch.no_grad()
def evaluation_summaries(
    minibatch: Batch, evaluation: Evaluation, numbers: Mapping[str, Tensor] | None = None
) -> dict[str, float]:
    """Returns summaries of policy and critic that suit every algorithm, over the valid steps of a minibatch,
    by tag under train/. Tags are as in version 1. numbers: further summaries to add, tag -> scalar tensor."""
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
