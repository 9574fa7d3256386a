"""The encoder of DeepMind Lab: a picture, and an instruction that an LSTM reads."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.family_encoders import DmlabEncoder, TextEncoder
from sample_factory.models.towers import make_actor_critic
from sample_factory.spaces.observations import Indices

WORDS = Indices([1000] * 16)
PICTURE = gym.spaces.Box(0, 255, (3, 72, 96), np.uint8)
FLAGS = ModelFlags(encoder_subtype="convnet_impala", encoder_custom="dmlab_instructions", hidden_size=32)
# Three instructions of 1 to 16 words, two of them twice, and none at all.
TOKENS = torch.zeros(6, 16, dtype=torch.int64)
TOKENS[0, :3] = torch.tensor([5, 999, 5])
TOKENS[1, :1] = 7
TOKENS[2] = torch.arange(1, 17)
TOKENS[3:5] = TOKENS[:2]


def slowly(encoder: TextEncoder, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the output after the last word of one instruction, word for word."""
    words = tokens[: max(1, int((tokens > 0).sum()))]
    state = None
    for word in words:
        output, state = encoder.rnn(encoder.words(word).view(1, 1, -1), state)
    return output.flatten()


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_the_features_are_the_output_after_the_last_word(cell):
    torch.manual_seed(1)
    encoder = TextEncoder(WORDS, 20, 64, cell)
    expected = torch.stack([slowly(encoder, tokens) for tokens in TOKENS])
    features = encoder(TOKENS)
    torch.testing.assert_close(features, expected)
    weights = torch.randn(features.shape)
    gradients = torch.autograd.grad((features * weights).sum(), encoder.parameters())
    torch.testing.assert_close(
        gradients, torch.autograd.grad((expected * weights).sum(), encoder.parameters())
    )
    assert not gradients[0][0].any(), "padding is not learned"


@pytest.mark.parametrize("spaces, size", [({"obs": PICTURE}, 32), ({"obs": PICTURE, "INSTR": WORDS}, 96)])
def test_an_instruction_adds_64_features(spaces, size):
    encoder = DmlabEncoder(FLAGS, gym.spaces.Dict(spaces))
    rows = {"obs": torch.rand(6, 3, 72, 96), "INSTR": TOKENS}
    assert encoder.out_size == size and encoder(rows).shape == (6, size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_only_acts_gives_the_same_instruction_features(dtype):
    torch.manual_seed(1)
    space = gym.spaces.Dict({"obs": PICTURE, "INSTR": WORDS})
    model = make_actor_critic(FLAGS, space, gym.spaces.Discrete(9))
    (encoder,) = (module for module in model.modules() if isinstance(module, TextEncoder))
    expected = encoder(TOKENS)
    model.prepare_to_act(dtype)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32), torch.no_grad():
        torch.testing.assert_close(encoder(TOKENS), expected, atol=0.01, rtol=0.05)
        rows = {"obs": torch.zeros(6, 3, 72, 96, dtype=torch.uint8), "INSTR": TOKENS.int()}
        rows["INSTR"][5] = 10**6  # rows that pad a batch may hold any number
        output = model.act(rows, torch.zeros(6, model.state_size))
    assert output.actions.shape == (6, 1) and output.values.isfinite().all()


def test_the_initialisation_leaves_the_embedding_of_padding_at_0():
    space = gym.spaces.Dict({"obs": PICTURE, "INSTR": WORDS})
    model = make_actor_critic(FLAGS, space, gym.spaces.Discrete(9))
    (words,) = (module for module in model.modules() if isinstance(module, nn.Embedding))
    assert not words.weight[0].any() and words.weight[1:].any(dim=1).all()
