"""The encoder of the VizDoom family: --encoder_custom=vizdoom."""

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoders import make_observation_encoder, mlp

MEASUREMENTS_WIDTHS = (128, 128)


class VizdoomEncoder(nn.Module):
    """The picture `obs` through the preset of the flags and, where the space has them, `measurements` through
    a small MLP; both concatenated.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.image_encoder = make_observation_encoder(flags, "obs", observation_space["obs"].shape)
        self.out_size = self.image_encoder.out_size
        self.measurements_encoder = None
        if "measurements" in observation_space.spaces:
            num_measurements = observation_space["measurements"].shape[0]
            self.measurements_encoder = mlp(flags, num_measurements, MEASUREMENTS_WIDTHS)
            self.out_size += MEASUREMENTS_WIDTHS[-1]

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """obs [B, *shape], measurements [B, M] to [B, out_size]."""
        features = self.image_encoder(observations["obs"])
        if self.measurements_encoder is None:
            return features
        return torch.cat((features, self.measurements_encoder(observations["measurements"])), dim=-1)
