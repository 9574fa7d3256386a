"""Losses that any built-in algorithm can add: exploration, a KL divergence, auxiliary tasks."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.algo.cpc import contrastive_loss, draw_comparisons, usable_comparisons
from sample_factory.algo.losses import EXPLORATION_LOSSES, kl_loss
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import Evaluation
from sample_factory.learning.algorithms.episodic_task import make_episodic
from sample_factory.learning.batch import Batch
from sample_factory.models.actor_critic import ActorCritic, Unroll
from sample_factory.models.cpc import ActionConditionalCPC
from sample_factory.models.custom_parts import out_size
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.models.towers import TowerActorCritic

EPISODIC = "episodic"  # name of the loss and of the module of the episodic memory
CPC_COEFF = 0.1
NUM_WRONG = 20  # observations that each prediction is compared with, besides the right one


class ExtraLosses:
    """The losses of --exploration_loss_coeff, --kl_loss_coeff, --use_cpc and --episodic_memory."""

    def __init__(self, flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator):
        """The arguments of an algorithm's factory."""
        self._flags = flags
        self._device = policy.device
        self._rng = rng
        self._cpc = make_cpc(policy.model) if flags.use_cpc else None
        self._episodic = make_episodic(flags, policy, rng)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules beside the policy's network, see `Algorithm`."""
        modules: dict[str, nn.Module] = {}
        if self._cpc is not None:
            modules["cpc"] = self._cpc
        if self._episodic is not None:
            modules[EPISODIC] = self._episodic.encoder
        return modules

    def set_flags(self, flags: LearningFlags) -> None:
        """Uses other flags from now on."""
        self._flags = flags
        if self._episodic is not None:
            self._episodic.set_flags(flags)

    def terms(self, minibatch: Batch, evaluation: Evaluation) -> dict[str, Tensor]:
        """Returns the weighted losses by name; a loss that is turned off is 0.

        The loss of the episodic memory is included only if the network has one. It raises RuntimeError if
        `after_step` was not called since the previous call.
        """
        flags, valid = self._flags, minibatch.own
        zero = torch.zeros((), device=self._device)
        terms = {"exploration": zero, "kl": zero, "auxiliary": zero}
        if flags.exploration_loss_coeff != 0:
            loss = EXPLORATION_LOSSES[flags.exploration_loss](evaluation.distribution, valid)
            terms["exploration"] = loss * flags.exploration_loss_coeff
        if flags.kl_loss_coeff != 0:
            loss = kl_loss(evaluation.distribution, evaluation.behavior, valid)
            terms["kl"] = loss * flags.kl_loss_coeff
        if self._cpc is not None:
            terms["auxiliary"] = cpc_loss(flags, self._cpc, minibatch, evaluation.unrolled, self._rng)
        if self._episodic is not None:
            terms[EPISODIC] = self._episodic.loss(minibatch, evaluation)
        return terms

    def after_step(self) -> None:
        """Fills the episodic memory, if there is one. To be called once after each SGD step."""
        if self._episodic is not None:
            self._episodic.after_step()


def make_cpc(model: ActorCritic) -> ActionConditionalCPC:
    """Returns the networks of the auxiliary task CPC|A (algo/cpc.py) for the actor's tower of the model."""
    assert isinstance(model, TowerActorCritic), "--use_cpc is refused for other networks"
    tower = model.each_tower()[0]
    cpc = ActionConditionalCPC(model.layout, tower.core.out_size, out_size(tower.encoder))
    return cpc.to(model.device)


def cpc_loss(
    flags: LearningFlags,
    cpc: ActionConditionalCPC,
    minibatch: Batch,
    unrolled: Unroll,
    rng: np.random.Generator,
) -> Tensor:
    """Weighted loss of CPC|A for a minibatch [T, B]; its gradient reaches encoder and core."""
    actions = minibatch.actions
    forward_steps = flags.cpc_forward_steps
    counts = (flags.cpc_time_subsample, flags.cpc_forward_subsample, NUM_WRONG)
    num_steps, num_trajectories = minibatch.own.shape
    comparisons = draw_comparisons((num_steps, num_trajectories), forward_steps, counts, rng, actions.device)
    start, end, wrong = comparisons
    steps = start.T + torch.arange(forward_steps, device=actions.device).unsqueeze(-1)
    predictions = cpc.predict(_rows(unrolled.beliefs, start[:, 0]).float(), actions[steps])  # [k, S, B, H]
    # For each start, the predictions at its drawn horizons: [S, K, B, H].
    starts = torch.arange(len(start), device=actions.device).unsqueeze(-1)
    predictions = _rows(predictions.flatten(0, 1), (end - start - 1) * len(start) + starts)
    observations = cpc.of_observation(unrolled.encodings.float())
    right_logits = cpc.compare(predictions, _rows(observations, end))
    wrong_logits = cpc.compare(predictions.unsqueeze(-2), _rows(observations.flatten(0, 1), wrong))
    usable = usable_comparisons(comparisons, minibatch.own, minibatch.terminated | minibatch.truncated)
    return CPC_COEFF * contrastive_loss(right_logits, wrong_logits, usable)


def _rows(tensor: Tensor, index: Tensor) -> Tensor:
    """Returns tensor[index], with a gradient that is summed in the same order every time (and faster)."""
    return tensor.index_select(0, index.flatten()).view(*index.shape, *tensor.shape[1:])
