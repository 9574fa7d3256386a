"""Networks of the auxiliary task CPC|A (Guo et al. 2018, https://arxiv.org/abs/1811.06407, section 3)."""

import torch
from torch import Tensor, nn

from sample_factory.models.action_distributions import columns
from sample_factory.spaces.actions import ActionLayout

EMBEDDING_SIZE = 32


class ActionEmbedding(nn.Module):
    """Embeds actions: a table for each discrete component, a linear layer for all boxes, concatenated."""

    def __init__(self, layout: ActionLayout):
        super().__init__()
        self.layout = layout
        self.tables = nn.ModuleList(nn.Embedding(n, EMBEDDING_SIZE) for n in layout.discrete_sizes)
        num_parts = len(self.tables)
        self.box: nn.Linear | None = None
        if layout.box_actions:
            self.box = nn.Linear(len(layout.box_actions), EMBEDDING_SIZE)
            num_parts += 1
        self.out_size = num_parts * EMBEDDING_SIZE

    def forward(self, actions: Tensor) -> Tensor:
        """Maps actions [..., K] float32, as stored, to [..., out_size]."""
        parts = [
            table(actions[..., column].long())
            for table, column in zip(self.tables, self.layout.discrete_actions)
        ]
        if self.box is not None:
            parts.append(self.box(actions.index_select(-1, columns(self.layout.box_actions, actions.device))))
        return torch.cat(parts, dim=-1)


class ActionConditionalCPC(nn.Module):
    """Predicts from a belief and the actions that follow it; classifies observations against the prediction.

    The classifier distinguishes the observation that the actions have led to from others. All tensors are
    float32.

    belief_size: size of the core's outputs. encoding_size: size of the encoder's outputs.
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
        """Returns a prediction after each of k actions, [k, ..., belief_size].

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

        predictions: from `predict`. observations: `of_observation` of the encodings. Both [..., belief_size],
        broadcast against each other.
        """
        log_odds: Tensor = self.classifier(predictions + observations)
        return log_odds.squeeze(-1)
