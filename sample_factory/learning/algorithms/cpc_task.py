"""The auxiliary task of --use_cpc: action-conditional contrastive predictive coding, CPC|A.

Guo et al. 2018, https://arxiv.org/abs/1811.06407, section 3. From the output of the core at step t (belief)
and the actions a_t ... a_{t+k-1}, a classifier has to recognise the observation k steps ahead among
observations of other steps. This trains encoder and core where rewards are rare.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sample_factory.algo.losses import masked_mean
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.batch import Batch
from sample_factory.models.action_distributions import box_values
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.custom_parts import out_size
from sample_factory.models.towers import TowerActorCritic
from sample_factory.spaces.actions import ActionLayout

EMBEDDING_SIZE = 32
NUM_WRONG = 20  # observations that each prediction is compared with, besides the right one
CPC_COEFF = 0.1


class ActionEmbedding(nn.Module):
    """Embeds actions: a table lookup per discrete component, concatenated with a linear map of Boxes."""

    def __init__(self, layout: ActionLayout):
        super().__init__()
        self.layout = layout
        self.tables = nn.ModuleList(nn.Embedding(n, EMBEDDING_SIZE) for n in layout.discrete_sizes)
        self.box = nn.Linear(len(layout.box_actions), EMBEDDING_SIZE) if layout.box_actions else None
        self.out_size = (len(self.tables) + bool(layout.box_actions)) * EMBEDDING_SIZE

    def forward(self, actions: Tensor) -> Tensor:
        """Maps actions [..., K] float32, as trajectory buffers store them, to [..., out_size]."""
        parts = [
            table(actions[..., column].long())
            for table, column in zip(self.tables, self.layout.discrete_actions)
        ]
        if self.box is not None:
            parts.append(self.box(box_values(self.layout, actions)))
        return torch.cat(parts, dim=-1)


class ActionConditionalCPC(nn.Module):
    """Networks of CPC|A: predict future observations from a belief and the actions that follow, and score how
    well an observation matches a prediction.

    belief_size, encoding_size: sizes of the outputs of the core and of the encoder. All tensors are float32.
    """

    def __init__(self, layout: ActionLayout, belief_size: int, encoding_size: int):
        super().__init__()
        self.embedding = ActionEmbedding(layout)
        self.gru = nn.GRU(self.embedding.out_size, belief_size)
        # The first layer of the classifier in two parts: an observation is compared with many predictions,
        # but its part is computed once.
        self.of_prediction = nn.Linear(belief_size, belief_size)
        self.of_observation = nn.Linear(encoding_size, belief_size, bias=False)
        self.classifier = nn.Sequential(
            nn.ReLU(), nn.Linear(belief_size, belief_size), nn.ReLU(), nn.Linear(belief_size, 1)
        )

    def predict(self, beliefs: Tensor, actions: Tensor) -> Tensor:
        """Returns predictions of the observations after each of k successive actions, [k, ..., belief_size].

        beliefs: [..., belief_size], before the first action. actions: [k, ..., K].
        """
        embedded = self.embedding(actions)
        predictions, _ = self.gru(
            embedded.reshape(len(actions), -1, embedded.shape[-1]),
            beliefs.reshape(1, -1, beliefs.shape[-1]),
        )
        projected: Tensor = self.of_prediction(predictions)
        return projected.view(*actions.shape[:-1], -1)

    def compare(self, predictions: Tensor, observations: Tensor) -> Tensor:
        """Returns the log-odds [...] that an observation belongs to a prediction.

        predictions: result of `predict`. observations: encodings, mapped by `of_observation`. Both [...,
            belief_size], broadcast against each other.
        """
        log_odds: Tensor = self.classifier(predictions + observations)
        return log_odds.squeeze(-1)


def make_cpc(model: ActorCritic) -> ActionConditionalCPC:
    """Makes the networks of the CPC task, on the model's device, sized for the actor's encoder and core."""
    assert isinstance(model, TowerActorCritic), "--use_cpc is refused for other networks"
    tower = model.each_tower()[0]
    cpc = ActionConditionalCPC(model.layout, tower.core.out_size, out_size(tower.encoder))
    return cpc.to(model.device)


class Comparisons(NamedTuple):
    """Drawn indices, int64, of what the classifier compares in a minibatch [T, B]: S start steps, K horizons
    for each start, and N wrong observations for each horizon and column.

    In each column b, the classifier has to recognise the observation at step end[s, k] from the belief at
    step start[s], and to reject the observations at wrong[s, k, b], indices into the flattened observations
    [(T+1) * B].
    """

    start: Tensor  # [S, 1]
    end: Tensor  # [S, K]
    wrong: Tensor  # [S, K, B, N]


def draw_comparisons(
    flags: LearningFlags, shape: tuple[int, int], rng: np.random.Generator, device: torch.device
) -> Comparisons:
    """Draws start steps, horizons and wrong observations at random.

    shape: (T, B). Horizons are 1 to --cpc_forward_steps, which is at most T; start steps leave room for the
    longest horizon. If T allows fewer start steps or horizons than the flags ask for, draws all of them.
    """
    num_steps, num_columns = shape
    longest = flags.cpc_forward_steps
    start = rng.permutation(num_steps - longest + 1)[: flags.cpc_time_subsample, None]
    horizons = np.tile(np.arange(1, longest + 1), (len(start), 1))
    horizons = rng.permuted(horizons, axis=1)[:, : flags.cpc_forward_subsample]
    wrong = rng.integers((num_steps + 1) * num_columns, size=(*horizons.shape, num_columns, NUM_WRONG))
    return Comparisons(*(torch.from_numpy(x).to(device) for x in (start, start + horizons, wrong)))


def usable_comparisons(comparisons: Comparisons, valid: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
    """Returns masks, bool, of the comparisons that count: [S, K, B] for the observations to recognise, and
    [S, K, B, N] for the wrong observations.

    All steps from the start to the observation to recognise must be valid and in one episode. Wrong
    observations must belong to valid steps, and must not be the observation to recognise.

    valid: [T, B] bool; the last observation, at step T, counts as valid, since no agent has acted on it yet.
    ended: [T, B] bool, whether the episode ends with this step.
    """
    num_columns = valid.shape[1]
    valid_observation = torch.cat([valid, torch.ones_like(valid[:1])])
    breaks = torch.cat([torch.zeros_like(valid[:1], dtype=torch.int64), (ended | ~valid).cumsum(0)])
    start, end, wrong = comparisons
    right = (breaks[end] == breaks[start]) & valid_observation[end]
    right_index = end.unsqueeze(-1) * num_columns + torch.arange(num_columns, device=valid.device)
    is_other = wrong != right_index.unsqueeze(-1)
    return right, valid_observation.flatten()[wrong] & is_other & right.unsqueeze(-1)


def contrastive_loss(right_logits: Tensor, wrong_logits: Tensor, usable: tuple[Tensor, Tensor]) -> Tensor:
    """Returns the classifier's binary cross-entropy, a scalar: the mean over observations to recognise plus
    the mean over wrong observations.

    Guessing gives 2 log 2; the loss is 0 if no comparison is usable.
    right_logits [S, K, B], wrong_logits [S, K, B, N]: log-odds that the observation is the one to recognise.
    usable: masks of the same shapes, bool, True where a comparison counts.
    """
    usable_right, usable_wrong = usable
    right = masked_mean(softplus(-right_logits), usable_right)
    return right + masked_mean(softplus(wrong_logits), usable_wrong)


def cpc_loss(
    flags: LearningFlags,
    cpc: ActionConditionalCPC,
    minibatch: Batch,
    unrolled: NetworkOutput,
    rng: np.random.Generator,
) -> Tensor:
    """Returns the weighted loss of the CPC task, a scalar; its gradient reaches encoder and core."""
    assert unrolled.beliefs is not None and unrolled.encodings is not None, "the built-in network has both"
    actions = minibatch.actions
    num_steps, num_trajectories = minibatch.own.shape
    comparisons = draw_comparisons(flags, (num_steps, num_trajectories), rng, actions.device)
    start, end, wrong = comparisons
    steps = start.T + torch.arange(flags.cpc_forward_steps, device=actions.device).unsqueeze(-1)
    predictions = cpc.predict(_rows(unrolled.beliefs, start[:, 0]).float(), actions[steps])  # [k, S, B, H]
    # For each start, the predictions at its drawn horizons: [S, K, B, H].
    starts = torch.arange(len(start), device=actions.device).unsqueeze(-1)
    predictions = _rows(predictions.flatten(0, 1), (end - start - 1) * len(start) + starts)
    observations = cpc.of_observation(unrolled.encodings.float())
    right_logits = cpc.compare(predictions, _rows(observations, end))
    wrong_logits = cpc.compare(predictions.unsqueeze(-2), _rows(observations.flatten(0, 1), wrong))
    ended = minibatch.terminated | minibatch.truncated
    ended[-1:] |= ~minibatch.active_at_end  # as within the trajectory, where such a step is not valid
    usable = usable_comparisons(comparisons, minibatch.own, ended)
    return CPC_COEFF * contrastive_loss(right_logits, wrong_logits, usable)


def _rows(tensor: Tensor, index: Tensor) -> Tensor:
    """Returns tensor[index], with a backward pass that is deterministic and faster than the one of
    indexing."""
    return tensor.index_select(0, index.flatten()).view(*index.shape, *tensor.shape[1:])
