"""Encoder of the DeepMind Lab family, --encoder_custom=dmlab_instructions."""

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.encoders import make_observation_encoder
from sample_factory.spaces.observations import Indices

INSTRUCTION = "INSTR"
WORD_WIDTH = 20
INSTRUCTION_WIDTH = 64


class DmlabEncoder(nn.Module):
    """Encodes the picture `obs` with the preset of the flags and, if there is one, `INSTR` with an LSTM.

    Both are concatenated. Sizes are those of IMPALA (Espeholt et al. 2018, figure 3).
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        spaces = encoded_spaces(observation_space)
        self.image_encoder = make_observation_encoder(flags, "obs", spaces["obs"])
        self.out_size = self.image_encoder.out_size
        self.instruction_encoder: InstructionEncoder | None = None
        if INSTRUCTION in spaces:
            self.instruction_encoder = InstructionEncoder(spaces[INSTRUCTION])
            self.out_size += INSTRUCTION_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps obs [B, *shape] and INSTR [B, L] to [B, out_size]."""
        features: Tensor = self.image_encoder(observations["obs"])
        if self.instruction_encoder is None:
            return features
        return torch.cat((features, self.instruction_encoder(observations[INSTRUCTION])), dim=-1)


class InstructionEncoder(nn.Module):
    """An LSTM over the words of an instruction: tokens [B, L] int64 to [B, INSTRUCTION_WIDTH].

    Token 0 is padding, after the words.
    """

    def __init__(self, space: gym.spaces.Box):
        super().__init__()
        assert isinstance(space, Indices), f"{INSTRUCTION} should be tokens, not {space}"
        self.words = nn.Embedding(max(space.sizes), WORD_WIDTH, padding_idx=0)
        self.lstm = nn.LSTM(WORD_WIDTH, INSTRUCTION_WIDTH, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the output after the last word, float32; without words, that after one step of padding."""
        # Rows that pad a batch may hold any number.
        tokens = tokens.clamp(0, self.words.num_embeddings - 1)
        if not tokens.is_cpu:  # a GPU would have to wait until the host knows how many are different
            return self._encode(tokens)
        # An instruction stays for a whole episode, and many levels have none.
        different, rows = tokens.unique(dim=0, return_inverse=True)
        return self._encode(different)[rows]

    def _encode(self, tokens: Tensor) -> Tensor:
        # Not every CPU has an LSTM in bfloat16, to which the weights of a model that only acts are rounded.
        with torch.autocast(tokens.device.type, enabled=False):
            weights = {name: weight.float() for name, weight in self.lstm.named_parameters()}
            embedded = self.words(tokens).float()
            outputs, _ = torch.func.functional_call(self.lstm, weights, (embedded,))
        last = (tokens > 0).sum(dim=1).sub(1).clamp(min=0)
        features: Tensor = outputs[torch.arange(len(tokens), device=tokens.device), last]
        return features
