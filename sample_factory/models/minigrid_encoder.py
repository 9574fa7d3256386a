"""Encoder of the MiniGrid family, --encoder_custom=minigrid."""

from collections.abc import Mapping
from dataclasses import replace

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.custom_parts import out_size
from sample_factory.models.encoder_choice import (
    CONVNETS,
    MLP,
    RESNETS,
    encoded_spaces,
    preset_of_flags,
    smallest_side,
)
from sample_factory.models.encoders import (
    ACTIVATIONS,
    ImageEncoder,
    IndexLinear,
    VectorEncoder,
    make_observation_encoder,
)
from sample_factory.models.text_encoder import TextEncoder
from sample_factory.spaces.images import ImageLayout, ImageShape, image_layout
from sample_factory.spaces.observations import Indices

TINY = "minigrid_convnet_tiny"
# Its convolutions move by one cell, so that larger grids would have too many features.
MAX_TINY_SIDE = 11
CELL_WIDTH = 16
DIRECTION_WIDTH = 16
WORD_WIDTH = 32
MISSION_WIDTH = 64


class MinigridEncoder(nn.Module):
    """Encodes `obs`, `direction` and `mission`, if there is one; concatenates the results.

    obs: a grid of cells, whose types, colours and states are looked up in tables before the convolutions, or
        a picture. Both get the network of the flags, or a larger one instead of minigrid_convnet_tiny.
    mission: tokens of words, read by a GRU.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        spaces = encoded_spaces(observation_space)
        obs = spaces["obs"]
        self.image_encoder: nn.Module
        if isinstance(obs, Indices):
            self.image_encoder = CellsEncoder(flags, obs)
        else:
            side = max(image_layout(obs.shape).size[1:])
            self.image_encoder = make_observation_encoder(
                _for_side(flags, side, "convnet_simple"), "obs", obs
            )
        self.direction_table = IndexLinear(_indices(spaces["direction"]).sizes, DIRECTION_WIDTH)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.out_size = out_size(self.image_encoder) + DIRECTION_WIDTH
        self.mission_encoder: TextEncoder | None = None
        if "mission" in spaces:
            self.mission_encoder = TextEncoder(_indices(spaces["mission"]), WORD_WIDTH, MISSION_WIDTH, nn.GRU)
            self.out_size += MISSION_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps obs [B, H, W, 3], direction [B, 1] and mission [B, L] to [B]."""
        features = [
            self.image_encoder(observations["obs"]),
            self.activation(self.direction_table(observations["direction"])),
        ]
        if self.mission_encoder is not None:
            features.append(self.mission_encoder(observations["mission"]))
        return torch.cat(features, dim=-1)


def _for_side(flags: ModelFlags, side: int, larger: str) -> ModelFlags:
    """Returns the flags with the network `larger` instead of TINY, where an image is too large for that."""
    is_too_large = flags.encoder_subtype == TINY and side > MAX_TINY_SIDE
    return replace(flags, encoder_subtype=larger) if is_too_large else flags


def _indices(space: gym.spaces.Box) -> Indices:
    assert isinstance(space, Indices), f"{space} should be Indices"
    return space


class CellsEncoder(nn.Module):
    """Tables for the numbers of a cell, shared by all cells, then the network for images of the flags.

    A grid that is too small for its convolutions gets an MLP.
    """

    def __init__(self, flags: ModelFlags, space: Indices):
        """space: of shape [H, W, C], with equal sizes in all cells."""
        super().__init__()
        height, width, num_parts = space.shape
        self.table = IndexLinear(space.sizes[:num_parts], CELL_WIDTH)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.network: VectorEncoder | ImageEncoder
        flags = _for_side(flags, max(height, width), "convnet_small")
        preset = preset_of_flags(flags)
        if preset == MLP or min(height, width) < smallest_side(preset):
            shape = (height, width, CELL_WIDTH)
            self.network = VectorEncoder(flags, shape, flags.encoder_mlp_layers)
        else:
            assert preset in RESNETS or preset in CONVNETS
            image = ImageShape(CELL_WIDTH, height, width)
            layout = ImageLayout(image, is_stack=False, is_hwc=True, is_plane=False)
            self.network = ImageEncoder(flags, layout, preset)
        self.out_size = self.network.out_size

    def forward(self, cells: Tensor) -> Tensor:
        """Maps [B, H, W, C] int64 to [B]."""
        embedded = self.activation(self.table(cells.flatten(0, 2)))
        features: Tensor = self.network(embedded.unflatten(0, cells.shape[:3]))
        return features
