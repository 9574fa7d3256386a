"""An encoder of maps that keeps the place of each field, for action spaces with choices per field."""

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cpu_layers import Conv2d, Linear
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.encoders import ACTIVATIONS

WIDTH = 32  # channels of the hidden convolutions
NUM_BLOCKS = 2
MAX_PLACE_FEATURES = 1024  # features of all fields together; the action head has a weight for each
GLOBAL_WIDTH = 128


class MapEncoder(nn.Module):
    """Convolutions without a stride over one observation [C, H, W]; returns the features of every field,
    followed by features of the whole map.

    Residual blocks (He et al. 2016) of 3x3 convolutions see 11 x 11 fields around a field. The second half of each
    block also gets the mean and the maximum of each channel over the map.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        """Raises ValueError unless there is a single observation of three dimensions."""
        super().__init__()
        spaces = encoded_spaces(observation_space)
        if len(spaces) != 1 or len(next(iter(spaces.values())).shape) != 3:
            shapes = {key: space.shape for key, space in spaces.items()}
            raise ValueError(f"it encodes one observation [channels, height, width]; the env has {shapes}")
        ((self.key, space),) = spaces.items()
        channels, height, width = space.shape
        num_fields = height * width
        place_channels = max(1, min(WIDTH // 2, MAX_PLACE_FEATURES // num_fields))
        self.first = Conv2d(channels, WIDTH, 3, 1, 1)
        self.blocks = nn.ModuleList(_Block(flags, WIDTH) for _ in range(NUM_BLOCKS))
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.place = Conv2d(WIDTH, place_channels, 1, 1, 0)
        self.whole = Linear(num_fields * place_channels + WIDTH, GLOBAL_WIDTH)
        self.out_size = num_fields * place_channels + GLOBAL_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps [B, C, H, W] to [B, out_size]."""
        x = self.activation(self.first(observations[self.key]))
        for block in self.blocks:
            x = block(x)
        places = self.activation(self.place(x).flatten(1))
        pooled = torch.cat((places, x.mean(dim=(2, 3))), dim=-1)
        return torch.cat((places, self.activation(self.whole(pooled))), dim=-1)


class _Block(nn.Module):
    """A residual block; between its convolutions, each field gets features of the whole map added."""

    def __init__(self, flags: ModelFlags, width: int):
        super().__init__()
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.first = Conv2d(width, width, 3, 1, 1)
        self.pooled = Linear(2 * width, width)
        self.second = Conv2d(width, width, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, width, H, W] to the same shape."""
        hidden = self.first(x)
        pooled = torch.cat((hidden.mean(dim=(2, 3)), hidden.amax(dim=(2, 3))), dim=-1)
        hidden = hidden + self.pooled(pooled)[:, :, None, None]
        out: Tensor = self.activation(x + self.second(self.activation(hidden)))
        return out
