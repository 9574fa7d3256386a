"""Encoder of the DeepMind Lab family, --encoder_custom=dmlab_instructions."""

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.encoders import make_observation_encoder
from sample_factory.models.text_encoder import TextEncoder
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
        self.instruction_encoder: TextEncoder | None = None
        if INSTRUCTION in spaces:
            tokens = spaces[INSTRUCTION]
            assert isinstance(tokens, Indices), f"{INSTRUCTION} should be tokens, not {tokens}"
            self.instruction_encoder = TextEncoder(tokens, WORD_WIDTH, INSTRUCTION_WIDTH, nn.LSTM)
            self.out_size += INSTRUCTION_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps obs [B, *shape] and INSTR [B, L] to [B, out_size]."""
        features: Tensor = self.image_encoder(observations["obs"])
        if self.instruction_encoder is None:
            return features
        return torch.cat((features, self.instruction_encoder(observations[INSTRUCTION])), dim=-1)
