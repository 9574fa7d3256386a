"""Encoder of texts whose words are tokens, such as instructions and missions."""

import torch
from torch import Tensor, nn

from sample_factory.spaces.observations import Indices


class TextEncoder(nn.Module):
    """A GRU or LSTM over the words of a text: tokens [B, L] int64 to its output after the last word.

    Token 0 is padding, after the words.
    """

    def __init__(self, space: Indices, word_width: int, out_size: int, cell: type[nn.GRU] | type[nn.LSTM]):
        """space: of the tokens, [L]. word_width: numbers that describe a word. out_size: of the output."""
        super().__init__()
        self.words = nn.Embedding(max(space.sizes), word_width, padding_idx=0)
        self.rnn = cell(word_width, out_size, batch_first=True)
        self.out_size = out_size

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns [B, out_size] float32; for a text without words, the output after one step of padding."""
        # Rows that pad a batch may hold any number.
        tokens = tokens.clamp(0, self.words.num_embeddings - 1)
        if not tokens.is_cpu:  # a GPU would have to wait until the host knows how many are different
            return self.encode(tokens)
        # A text stays for a whole episode, and often for all of them.
        different, rows = tokens.unique(dim=0, return_inverse=True)
        return self.encode(different)[rows]

    def encode(self, tokens: Tensor) -> Tensor:
        """Returns what `forward` does, computed for each row even if rows are equal; tokens: in the space."""
        with torch.autocast(tokens.device.type, enabled=False):  # not every CPU has an LSTM in bfloat16
            outputs, _ = self.rnn(self.words(tokens))
        last = (tokens > 0).sum(dim=1).sub(1).clamp(min=0)
        features: Tensor = outputs[torch.arange(tokens.shape[0], device=tokens.device), last]
        return features
