"""The auxiliary task CPC|A (--use_cpc) on the minibatches of the main task; see algo/cpc.py."""

import numpy as np
import torch
from torch import Tensor

from sample_factory.algo.cpc import contrastive_loss, draw_comparisons, usable_comparisons
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.batch import Batch
from sample_factory.models.actor_critic import ActorCritic, Unroll
from sample_factory.models.cpc import ActionConditionalCPC
from sample_factory.models.custom_parts import out_size
from sample_factory.models.towers import TowerActorCritic

CPC_COEFF = 0.1
NUM_WRONG = 20


def make_cpc(model: ActorCritic) -> ActionConditionalCPC:
    """Returns the networks of the task for the actor's tower of the model, on its device."""
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
