"""The networks of the auxiliary task CPC|A (Guo et al. 2018, https://arxiv.org/abs/1811.06407)."""

import torch
from torch import Tensor, nn

from sample_factory.models.action_distributions import columns
from sample_factory.spaces.actions import ActionLayout

EMBEDDING_SIZE = 32


class ActionEmbedding(nn.Module):
    """Actions [..., K], as stored, to [..., out_size]: a table per discrete part, a matrix for boxes."""

    def __init__(self, layout: ActionLayout):
        super().__init__()
        self.layout = layout
        self.tables = nn.ModuleList(nn.Embedding(n, EMBEDDING_SIZE) for n in layout.discrete_sizes)
        num_parts = len(self.tables)
        self.box = None
        if layout.box_actions:
            self.box = nn.Linear(len(layout.box_actions), EMBEDDING_SIZE)
            num_parts += 1
        self.out_size = num_parts * EMBEDDING_SIZE

    def forward(self, actions: Tensor) -> Tensor:
        parts = [
            table(actions[..., column].long())
            for table, column in zip(self.tables, self.layout.discrete_actions)
        ]
        if self.box is not None:
            parts.append(self.box(actions.index_select(-1, columns(self.layout.box_actions, actions.device))))
        return torch.cat(parts, dim=-1)


class ActionConditionalCPC(nn.Module):
    """From a recurrent state and the actions that follow, tells the observation they lead to from others.

    All float32. belief_size: width of the core's outputs; encoding_size: width of the encoder's.
    """

    def __init__(self, layout: ActionLayout, belief_size: int, encoding_size: int):
        super().__init__()
        self.embedding = ActionEmbedding(layout)
        self.gru = nn.GRU(self.embedding.out_size, belief_size)
        # The first layer of the classifier, in two parts: an observation is compared with many predictions,
        # and its part is computed once.
        self.of_prediction = nn.Linear(belief_size, belief_size)
        self.of_observation = nn.Linear(encoding_size, belief_size, bias=False)
        self.classifier = nn.Sequential(
            nn.ReLU(), nn.Linear(belief_size, belief_size), nn.ReLU(), nn.Linear(belief_size, 1)
        )

    def predict(self, beliefs: Tensor, actions: Tensor) -> Tensor:
        """Runs actions [k, ..., K] from beliefs [..., belief_size] before the first of them; returns
        [k, ..., belief_size], a prediction after each."""
        embedded = self.embedding(actions)
        predictions, _ = self.gru(
            embedded.reshape(len(actions), -1, embedded.shape[-1]),
            beliefs.reshape(1, -1, beliefs.shape[-1]),
        )
        return self.of_prediction(predictions).view(*actions.shape[:-1], -1)

    def compare(self, predictions: Tensor, observations: Tensor) -> Tensor:
        """Log-odds that an observation follows: predictions of `predict` and `of_observation` of encodings,
        broadcast against each other, [..., belief_size], to [...]."""
        return self.classifier(predictions + observations).squeeze(-1)
