"""A network over a map whose actions belong to fields, such as moving armies from one field to the next."""

from collections.abc import Mapping

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cpu_layers import Conv2d, Linear
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.encoders import ACTIVATIONS, ComputesLogits
from sample_factory.spaces.actions import ACTION_MASK

WIDTH = 32  # channels of the hidden convolutions
NUM_BLOCKS = 2
GLOBAL_WIDTH = 128


class MapEncoder(nn.Module, ComputesLogits):
    """Convolutions without a stride over one observation [C, H, W]. Returns the logits of the actions, then
    features of the whole map.

    The action space is Discrete(P * H * W + Q) with an action mask, where P * H * W choices are P planes over
    the map, in this order, and Q < H * W further ones belong to no field. A field's logits come from the
    fields around it by the same weights everywhere (Huang et al. 2021, arXiv:2105.13807): what is
    learned in one place holds in all of them.

    Residual blocks (He et al. 2016) of 3x3 convolutions see the 11 x 11 fields around a field; and each block
    adds the mean and the maximum of each channel over the map.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        """Raises ValueError unless there are one observation of three dimensions and an action mask that fits
        it."""
        super().__init__()
        self.key, (channels, height, width) = _map_of(observation_space)
        self.num_logits = observation_space[ACTION_MASK].shape[0]  # type: ignore[index]
        num_planes, num_others = divmod(self.num_logits, height * width)
        self.first = Conv2d(channels, WIDTH, 3, 1, 1)
        self.blocks = nn.ModuleList(_Block(flags) for _ in range(NUM_BLOCKS))
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.planes = Conv2d(WIDTH, num_planes, 1)
        self.whole = Linear(2 * WIDTH, GLOBAL_WIDTH)
        self.others = Linear(GLOBAL_WIDTH, num_others)
        self.out_size = self.num_logits + GLOBAL_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps [B, C, H, W] to [B, out_size]."""
        x = self.activation(self.first(observations[self.key]))
        for block in self.blocks:
            x = block(x)
        whole = self.activation(self.whole(_pooled(x)))
        return torch.cat((self.planes(x).flatten(1), self.others(whole), whole), dim=-1)


def _map_of(observation_space: gym.spaces.Dict) -> tuple[str, tuple[int, int, int]]:
    """Returns key and shape of the only observation besides the action mask."""
    shapes = {key: space.shape for key, space in encoded_spaces(observation_space).items()}
    (key, shape), *others = shapes.items()
    if others or len(shape) != 3:
        raise ValueError(f"it encodes one observation [channels, height, width]; the env has {shapes}")
    if ACTION_MASK not in observation_space.spaces:
        raise ValueError(f"it needs an observation {ACTION_MASK}, from which it learns the number of actions")
    num_actions = observation_space[ACTION_MASK].shape[0]  # type: ignore[index]
    if num_actions < shape[1] * shape[2]:
        raise ValueError(f"the env has {num_actions} actions, less than one for each field of {shape[1:]}")
    return key, shape


def _pooled(x: Tensor) -> Tensor:
    """Returns mean and maximum over the map: [B, C, H, W] to [B, 2 C]."""
    return torch.cat((x.mean(dim=(2, 3)), x.amax(dim=(2, 3))), dim=-1)


class _Block(nn.Module):
    """A residual block; between its convolutions, each field gets features of the whole map added."""

    def __init__(self, flags: ModelFlags):
        super().__init__()
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.first = Conv2d(WIDTH, WIDTH, 3, 1, 1)
        self.pooled = Linear(2 * WIDTH, WIDTH)
        self.second = Conv2d(WIDTH, WIDTH, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, WIDTH, H, W] to the same shape."""
        hidden = self.first(x)
        hidden = hidden + self.pooled(_pooled(hidden))[:, :, None, None]
        out: Tensor = self.activation(x + self.second(self.activation(hidden)))
        return out
