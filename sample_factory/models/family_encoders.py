"""Encoders of env families, and of texts such as instructions and missions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cpu_layers import Conv2d, Linear
from sample_factory.models.custom_parts import out_size
from sample_factory.models.encoder_choice import (
    AUTO,
    CONVNETS,
    MLP,
    RESNETS,
    SMALL,
    encoded_spaces,
    preset_of_flags,
    smallest_side,
)
from sample_factory.models.encoders import (
    ACTIVATIONS,
    ComputesLogits,
    ImageEncoder,
    IndexLinear,
    MultiInputEncoder,
    TakesRawImages,
    VectorEncoder,
    make_observation_encoder,
    mlp,
    takes_raw_images,
)
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import (
    ImageLayout,
    ImageShape,
    Indices,
    image_layout,
    without_entries,
)

VIZDOOM_MEASUREMENTS_WIDTHS = (128, 128)

INSTRUCTION = "INSTR"
INSTRUCTION_WORD_WIDTH = 20
INSTRUCTION_WIDTH = 64

TINY = "minigrid_convnet_tiny"
# Its convolutions move by one cell, so that larger grids would have too many features.
MAX_TINY_SIDE = 11
CELL_WIDTH = 16
DIRECTION_WIDTH = 16
MISSION_WORD_WIDTH = 32
MISSION_WIDTH = 64

MAP_WIDTH = 32  # channels of the hidden convolutions
NUM_MAP_BLOCKS = 2
GLOBAL_WIDTH = 128


class TextEncoder(nn.Module):
    """Encodes a text, tokens [B, L] int64, by the output of a GRU or LSTM after the last word.

    Token 0 is padding, which may follow the words.
    """

    def __init__(self, space: Indices, word_width: int, out_size: int, cell: type[nn.GRU] | type[nn.LSTM]):
        """Creates the table of words and the recurrent layer. space: space of the tokens, shape [L].
        word_width: size of a word's embedding. out_size: width of the output."""
        super().__init__()
        self.words = nn.Embedding(max(space.sizes), word_width, padding_idx=0)
        self.rnn = cell(word_width, out_size, batch_first=True)
        self.out_size = out_size

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens [B, L] int64 to [B, out_size] float32. An empty text counts as one padding token."""
        # Rows that pad a batch may hold any number.
        tokens = tokens.clamp(0, self.words.num_embeddings - 1)
        if not tokens.is_cpu:  # a GPU would have to wait until the host knows how many are different
            return self.encode(tokens)
        # A text stays for a whole episode, and often for all of them.
        different, rows = tokens.unique(dim=0, return_inverse=True)
        return self.encode(different)[rows]

    def encode(self, tokens: Tensor) -> Tensor:
        """Encodes each row, equal rows too, whereas `forward` encodes equal rows only once on a CPU. Maps
        tokens [B, L] int64, all within the space, to [B, out_size] float32."""
        with torch.autocast(tokens.device.type, enabled=False):  # not every CPU has an LSTM in bfloat16
            outputs, _ = self.rnn(self.words(tokens))
        last = (tokens > 0).sum(dim=1).sub(1).clamp(min=0)
        features: Tensor = outputs[torch.arange(tokens.shape[0], device=tokens.device), last]
        return features


class VizdoomEncoder(nn.Module, TakesRawImages):
    """Encoder of the VizDoom family, --encoder_custom=vizdoom.

    Encodes the picture `obs` with the preset of the flags, the vector `measurements`, if the space has it,
    with a small MLP, and all other entries, such as those of a centralised critic, with a MultiInputEncoder.
    Concatenates the results.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        spaces = encoded_spaces(observation_space)
        self.image_encoder = make_observation_encoder(flags, "obs", spaces["obs"])
        self.raw_keys = frozenset({"obs"} if takes_raw_images(self.image_encoder) else ())
        self.out_size = self.image_encoder.out_size
        self.measurements_encoder: nn.Sequential | None = None
        if "measurements" in spaces:
            (num_measurements,) = spaces["measurements"].shape
            self.measurements_encoder = mlp(flags, num_measurements, VIZDOOM_MEASUREMENTS_WIDTHS)
            self.out_size += VIZDOOM_MEASUREMENTS_WIDTHS[-1]
        others = without_entries(observation_space, ("obs", "measurements", ACTION_MASK))
        self.other_encoder: MultiInputEncoder | None = None
        if others.spaces:
            self.other_encoder = MultiInputEncoder(flags, others)
            self.out_size += self.other_encoder.out_size
            self.raw_keys |= self.other_encoder.raw_keys

    def forward(self, observations: Mapping[str, Any]) -> Tensor:
        """Maps obs [B, *shape], measurements [B, M] and other entries to [B, out_size]."""
        features = [self.image_encoder(observations["obs"])]
        if self.measurements_encoder is not None:
            features.append(self.measurements_encoder(observations["measurements"]))
        if self.other_encoder is not None:
            features.append(self.other_encoder(observations))
        return torch.cat(features, dim=-1) if len(features) > 1 else features[0]


class DmlabEncoder(nn.Module, TakesRawImages):
    """Encoder of the DeepMind Lab family, --encoder_custom=dmlab_instructions.

    Encodes the picture `obs` with the preset of the flags and the instruction `INSTR`, if the space has it,
    with an LSTM; concatenates both. Sizes as in IMPALA (Espeholt et al. 2018, figure 3).
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        spaces = encoded_spaces(observation_space)
        self.image_encoder = make_observation_encoder(flags, "obs", spaces["obs"])
        self.raw_keys = frozenset({"obs"} if takes_raw_images(self.image_encoder) else ())
        self.out_size = self.image_encoder.out_size
        self.instruction_encoder: TextEncoder | None = None
        if INSTRUCTION in spaces:
            tokens = _indices(spaces[INSTRUCTION])
            self.instruction_encoder = TextEncoder(tokens, INSTRUCTION_WORD_WIDTH, INSTRUCTION_WIDTH, nn.LSTM)
            self.out_size += INSTRUCTION_WIDTH

    def forward(self, observations: Mapping[str, Any]) -> Tensor:
        """Maps obs [B, *shape] and INSTR [B, L] to [B, out_size]."""
        features: Tensor = self.image_encoder(observations["obs"])
        if self.instruction_encoder is None:
            return features
        return torch.cat((features, self.instruction_encoder(observations[INSTRUCTION])), dim=-1)


class MinigridEncoder(nn.Module):
    """Encoder of the MiniGrid family, --encoder_custom=minigrid.

    Encodes `obs`, `direction` and, if the space has it, `mission`; concatenates the results.

    obs: a picture, or a grid of cells with type, colour and state, which are looked up in tables before the
        convolutions. The convolutions are the preset of the flags, but another preset replaces
        minigrid_convnet_tiny for a large image.
    mission: tokens of words, encoded by a GRU.
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
            self.mission_encoder = TextEncoder(
                _indices(spaces["mission"]), MISSION_WORD_WIDTH, MISSION_WIDTH, nn.GRU
            )
            self.out_size += MISSION_WIDTH

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps obs [B, H, W, 3], direction [B, 1] and mission [B, L] to [B, out_size]."""
        features = [
            self.image_encoder(observations["obs"]),
            self.activation(self.direction_table(observations["direction"])),
        ]
        if self.mission_encoder is not None:
            features.append(self.mission_encoder(observations["mission"]))
        return torch.cat(features, dim=-1)


def _for_side(flags: ModelFlags, side: int, larger: str) -> ModelFlags:
    """Returns the flags with the preset `larger` in place of TINY if an image with this side, in pixels, is
    too large for TINY; otherwise returns them unchanged."""
    is_too_large = flags.encoder_subtype == TINY and side > MAX_TINY_SIDE
    return replace(flags, encoder_subtype=larger) if is_too_large else flags


def _indices(space: gym.spaces.Box) -> Indices:
    assert isinstance(space, Indices), f"{space} should be Indices"
    return space


class CellsEncoder(nn.Module):
    """Encodes a grid of cells: looks up the numbers of each cell in tables that all cells share, then applies
    the network for images that the flags name; an MLP if the grid is too small for its convolutions."""

    def __init__(self, flags: ModelFlags, space: Indices):
        """Makes the tables and the network. space: shape [H, W, C], with equal sizes in all cells."""
        super().__init__()
        height, width, num_parts = space.shape
        self.table = IndexLinear(space.sizes[:num_parts], CELL_WIDTH)
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.network: VectorEncoder | ImageEncoder
        flags = _for_side(flags, max(height, width), "convnet_small")
        preset = preset_of_flags(flags)
        if preset == AUTO:  # no smaller network: every cell counts
            preset = SMALL
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
        """Maps [B, H, W, C] int64 to [B, out_size]."""
        embedded = self.activation(self.table(cells.flatten(0, 2)))
        features: Tensor = self.network(embedded.unflatten(0, cells.shape[:3]))
        return features


class MapEncoder(nn.Module, ComputesLogits):
    """Encoder of one observation [C, H, W] for actions that belong to fields of a map, --encoder_custom=map.

    Its first outputs are the logits of the actions, the others are features of the whole map. The action
    space is Discrete(P * H * W + Q) with an action mask: the choices are P planes over the map, then
    Q < H * W choices that belong to no field. The logits of a field are computed from the fields around it
    with the same weights everywhere (Huang et al. 2021, arXiv:2105.13807), so that what is learned in one
    place applies in all places.

    Residual blocks (He et al. 2016) of 3x3 convolutions without a stride see the 11 x 11 fields around a
    field; each block adds the mean and the maximum of each channel over the map.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        """Makes the layers. Raises ValueError unless the space has an action mask with at least H * W entries
        and exactly one other observation, of shape [C, H, W]."""
        super().__init__()
        self.key, (channels, height, width) = _map_of(observation_space)
        self.num_logits = observation_space[ACTION_MASK].shape[0]  # type: ignore[index]
        num_planes, num_others = divmod(self.num_logits, height * width)
        self.first = Conv2d(channels, MAP_WIDTH, 3, 1, 1)
        self.blocks = nn.ModuleList(_MapBlock(flags) for _ in range(NUM_MAP_BLOCKS))
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.planes = Conv2d(MAP_WIDTH, num_planes, 1)
        self.whole = Linear(2 * MAP_WIDTH, GLOBAL_WIDTH)
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
    """Returns key and shape [C, H, W] of the only observation besides the action mask. Raises ValueError if
    the space has another form or the mask has fewer than H * W entries."""
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
    """Pools over the map: [B, C, H, W] to the means and maxima of all channels, [B, 2 C]."""
    return torch.cat((x.mean(dim=(2, 3)), x.amax(dim=(2, 3))), dim=-1)


class _MapBlock(nn.Module):
    """A residual block that adds features of the whole map to each field between its convolutions."""

    def __init__(self, flags: ModelFlags):
        super().__init__()
        self.activation = ACTIVATIONS[flags.nonlinearity]()
        self.first = Conv2d(MAP_WIDTH, MAP_WIDTH, 3, 1, 1)
        self.pooled = Linear(2 * MAP_WIDTH, MAP_WIDTH)
        self.second = Conv2d(MAP_WIDTH, MAP_WIDTH, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, MAP_WIDTH, H, W] to the same shape."""
        hidden = self.first(x)
        hidden = hidden + self.pooled(_pooled(hidden))[:, :, None, None]
        out: Tensor = self.activation(x + self.second(self.activation(hidden)))
        return out
