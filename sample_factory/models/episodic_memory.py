"""An episodic memory in the policy's network: it stores rare moments, and similar observations read them.

After Fernandes et al. 2022, "Momentum boosted episodic memory for improving learning in long-tailed RL
environments" (https://arxiv.org/abs/2504.05840). README.md says what differs.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from sample_factory.models.action_distributions import box_values
from sample_factory.spaces.actions import ActionLayout

KEY_SIZE = 32
TEMPERATURE = 0.05
# Priorities decrease by this with each write: a moment that is e times rarer stays 1 / AGEING writes longer.
AGEING = 1e-2
EMPTY = -1e9  # ageing does not change it in float32


class EpisodicMemory(nn.Module):
    """Slots with a key, a value and a priority each, and the layers that read them.

    The slots are buffers: they are part of the state_dict, and reach policy workers, checkpoints and other
    policies with the weights. The output is a continuous function of the weights, the slots and the
    observation only, so acting and learning agree. Only the learner writes.

    A value holds the action (a number for each choice and each element of a Box), the return that followed,
    and the belief.
    """

    keys: Tensor  # [S, KEY_SIZE] float32, of length 1
    values: Tensor  # [S, V] float32
    priorities: Tensor  # [S] float32, EMPTY where a slot holds nothing

    def __init__(self, num_slots: int, layout: ActionLayout, encoding_size: int, belief_size: int):
        super().__init__()
        self.layout = layout
        value_size = sum(layout.discrete_sizes) + len(layout.box_actions) + 1 + belief_size
        self.query_layer = nn.Linear(encoding_size, KEY_SIZE)
        self.value_layer = nn.Linear(value_size, encoding_size)
        self.gate = nn.Linear(encoding_size + value_size, encoding_size)
        # Remembering nothing has the weight of a memory with this similarity.
        self.no_memory = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("keys", torch.zeros(num_slots, KEY_SIZE))
        self.register_buffer("values", torch.zeros(num_slots, value_size))
        self.register_buffer("priorities", torch.full((num_slots,), EMPTY))

    def forward(self, encodings: Tensor) -> Tensor:
        """Returns encodings [..., E] float32, with what is remembered added."""
        with torch.autocast(encodings.device.type, enabled=False):
            encodings = encodings.float()
            read = self.read(encodings)
            gate = torch.sigmoid(self.gate(torch.cat((encodings, read), dim=-1)))
            remembered: Tensor = self.value_layer(read)
            return encodings + gate * remembered

    def read(self, encodings: Tensor) -> Tensor:
        """Returns the mean of all values, [..., V], weighted by the similarity of their keys to the query."""
        similarities = self.query(encodings) @ self.keys.T
        similarities = similarities.masked_fill(self.priorities == EMPTY, EMPTY)
        nothing = self.no_memory.expand(*encodings.shape[:-1], 1)
        weights = torch.softmax(torch.cat((nothing, similarities), dim=-1) / TEMPERATURE, dim=-1)
        return weights[..., 1:] @ self.values

    def query(self, encodings: Tensor) -> Tensor:
        """Returns queries of length 1, [..., KEY_SIZE]."""
        return normalize(self.query_layer(encodings), dim=-1)

    def value_of(self, actions: Tensor, returns: Tensor, beliefs: Tensor) -> Tensor:
        """Returns values [N, V] of moments.

        actions: [N, A], as stored. returns: [N], on the critic's scale. beliefs: [N, H].
        """
        layout = self.layout
        parts = [
            one_hot(actions[:, column].long(), size).float()
            for column, size in zip(layout.discrete_actions, layout.discrete_sizes)
        ]
        return torch.cat((*parts, box_values(layout, actions), returns.unsqueeze(1), beliefs), dim=1)

    @torch.no_grad()
    def write(self, keys: Tensor, values: Tensor, priorities: Tensor) -> None:
        """Lets all memories age; keeps the moments of highest priority among memories and new moments.

        keys: [N, KEY_SIZE]. values: [N, V]. priorities: [N], EMPTY for a moment that must not be kept. A
        moment that is not finite is not kept either.
        """
        finite = values.isfinite().all(dim=1) & keys.isfinite().all(dim=1) & priorities.isfinite()
        all_priorities = torch.cat((self.priorities - AGEING, priorities.masked_fill(~finite, EMPTY)))
        kept = all_priorities.topk(len(self.priorities)).indices
        self.keys.copy_(torch.cat((self.keys, keys.nan_to_num(0, 0, 0)))[kept])
        self.values.copy_(torch.cat((self.values, values.nan_to_num(0, 0, 0)))[kept])
        self.priorities.copy_(all_priorities[kept])
