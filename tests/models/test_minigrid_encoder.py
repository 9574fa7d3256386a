"""The encoder of MiniGrid: grids of any size, pictures, and missions whose order matters."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.families.minigrid_family import encoded_space, mission_tokens
from sample_factory.models.encoders import make_encoder
from sample_factory.models.family_encoders import MinigridEncoder, TextEncoder
from sample_factory.models.network_checks import made_up_observations
from sample_factory.models.normalizers import ObservationNormalizers

FLAGS = ModelFlags(
    encoder_custom="minigrid",
    encoder_subtype="minigrid_convnet_tiny",
    encoder_mlp_layers=(24,),
    hidden_size=20,
    use_rnn=False,
)


def space_of(shape, is_symbolic=True, num_words=0):
    return encoded_space({"image": gym.spaces.Box(0, 255, shape, np.uint8)}, is_symbolic, num_words)


def check_shape(encoder, space):
    normalized = ObservationNormalizers(FLAGS, space)
    rows = made_up_observations(space, 1, 2, torch.device("cpu"))
    rows = normalized({key: tensor[0] for key, tensor in rows.items()})
    assert encoder(rows).shape == (2, encoder.out_size)


@pytest.mark.parametrize("sides", [(3, 3), (7, 7), (9, 7), (25, 25)])
@pytest.mark.parametrize(("num_words", "preset"), [(0, FLAGS.encoder_subtype), (6, "auto")])
def test_a_grid_of_any_size_is_encoded(sides, num_words, preset):
    space = space_of((*sides, 3), num_words=num_words)
    encoder = make_encoder(replace(FLAGS, encoder_subtype=preset), space)
    assert isinstance(encoder, MinigridEncoder)
    check_shape(encoder, space)


def test_a_picture_gets_the_network_of_the_flags():
    space = space_of((56, 56, 3), is_symbolic=False)
    check_shape(make_encoder(FLAGS, space), space)


@pytest.mark.parametrize(("shape", "is_symbolic"), [((25, 25, 3), True), ((56, 56, 3), False)])
def test_a_large_image_does_not_get_the_network_of_a_small_one(shape, is_symbolic):
    space = space_of(shape, is_symbolic)
    encoder = make_encoder(replace(FLAGS, hidden_size=128), space)
    assert sum(parameter.numel() for parameter in encoder.parameters()) < 600_000  # else millions


def test_every_cell_and_every_number_of_it_counts():
    space = space_of((7, 7, 3))
    encoder = make_encoder(FLAGS, space)
    rows = torch.zeros(1 + 7 * 7 * 3, 7, 7, 3, dtype=torch.int64)
    rows.flatten(1)[torch.arange(1, len(rows)), torch.arange(len(rows) - 1)] = 1
    with torch.no_grad():
        features = encoder({"obs": rows, "direction": torch.zeros(len(rows), 1, dtype=torch.int64)})
    assert len(features.unique(dim=0)) == len(rows)


def missions(*texts, num_words=20):
    return torch.from_numpy(np.stack([mission_tokens(text, num_words) for text in texts])).long()


def test_the_order_of_the_words_counts_and_padding_does_not():
    torch.manual_seed(0)
    encoder = TextEncoder(
        space_of((7, 7, 3), num_words=20)["mission"],
        32,
        64,
        torch.nn.GRU,
    )
    texts = ("put the red ball near the blue box", "put the blue ball near the red box", "")
    with torch.no_grad():
        first, swapped, empty = encoder(missions(*texts))
        shorter = encoder(missions(*texts, num_words=8))
    assert not torch.allclose(first, swapped)
    assert not torch.allclose(first, empty)
    torch.testing.assert_close(shorter, torch.stack((first, swapped, empty)))
