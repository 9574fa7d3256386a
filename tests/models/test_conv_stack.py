"""A stack of convolutions in slices computes what its layers compute, with the same gradients."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models import conv_stack, normalizers
from sample_factory.models.conv_stack import PixelOrder, channels_first
from sample_factory.models.encoder_choice import CONVNETS
from sample_factory.models.encoders import ImageEncoder
from sample_factory.models.normalizers import FixedNormalizer, RawImages, RunningNormalizer
from sample_factory.models.towers import make_actor_critic
from sample_factory.spaces.observations import image_layout

ROWS = 5
SHAPES = {"channels first": (3, 40, 44), "last": (40, 44, 3), "plane": (40, 44), "stack": (2, 40, 44, 3)}


@pytest.fixture(autouse=True)
def slices_of_two_rows(monkeypatch):
    monkeypatch.setattr(conv_stack, "SLICE_BYTES", 2 * 4 * 3 * 40 * 44)


def encoder_of(shape, preset="convnet_atari", nonlinearity="elu"):
    torch.manual_seed(0)
    return ImageEncoder(ModelFlags(nonlinearity=nonlinearity), image_layout(shape), preset)


def images_of(shape, normalizer=None):
    rows = torch.randint(
        0, 256, (ROWS, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    normalizer = normalizer or RunningNormalizer(shape, start_mean=100.0, start_std=60.0)
    normalizer.update(rows)
    return RawImages(rows, normalizer)


def gradients(encoder, x, autocast=False):
    encoder = copy.deepcopy(encoder)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = encoder(x)
    (out.float() * torch.linspace(-1, 1, out.shape[1])).square().sum().backward()
    return [out.detach(), *(parameter.grad for parameter in encoder.parameters())]


def assert_same(ours, layers, **tolerances):
    for got, expected in zip(ours, layers, strict=True):
        torch.testing.assert_close(got.float(), expected.float(), **tolerances)


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
@pytest.mark.parametrize("nonlinearity", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("preset", CONVNETS)
def test_every_preset_learns_in_slices_as_layer_by_layer(preset, nonlinearity, capability, monkeypatch):
    encoder = encoder_of(SHAPES["channels first"], preset, nonlinearity)
    images = images_of(SHAPES["channels first"])
    layers = gradients(encoder, images.normalized(torch.float32))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert_same(gradients(encoder, images), layers, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("preset", ["convnet_impala", "convnet_small", "minigrid_convnet_tiny"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_layout_of_images_is_normalised_before_the_convolutions(shape, preset, monkeypatch):
    encoder = encoder_of(shape, preset)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    for images in (images_of(shape), images_of(shape, FixedNormalizer(shape, 10.0, 255.0))):
        layers = gradients(encoder, images.normalized(torch.float32))
        assert_same(gradients(encoder, images), layers, rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            assert_same([encoder(images)], layers[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_float_images_stay_as_they_are_and_learn_the_same_in_bfloat16(shape, monkeypatch):
    monkeypatch.setattr(normalizers, "CHUNK_BYTES", 4 * 3 * 40 * 44)
    encoder = encoder_of(shape, "convnet_small")
    images = images_of(shape)
    images = images._replace(rows=images.rows.float())
    before = images.rows.clone()
    ours, layers = (gradients(encoder, x, True) for x in (images, images.normalized(torch.bfloat16)))
    assert torch.equal(images.rows, before)
    assert_near(ours, layers)


@pytest.mark.parametrize("trained", ["weight", "bias"])
def test_weights_or_biases_alone_are_trained_from_rows_of_inference_mode(trained):
    encoder = encoder_of(SHAPES["channels first"])
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name.endswith(trained))
    with torch.inference_mode():
        images = images_of(SHAPES["channels first"])
    layers = gradients(encoder, images_of(SHAPES["channels first"]).normalized(torch.bfloat16), True)
    assert_near(gradients(encoder, images, True), layers)


def assert_near(ours, layers):
    """Checks that tensors, of which some are None, agree up to a few roundings of bfloat16."""
    for got, expected in zip(ours, layers, strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            assert (got.float() - expected.float()).norm() <= 0.05 * expected.float().norm()


def test_an_encoder_can_be_pickled_and_cut_into_layers():
    encoder = encoder_of(SHAPES["channels first"])
    images = images_of(SHAPES["channels first"])
    with torch.no_grad():
        assert torch.equal(pickle.loads(pickle.dumps(encoder))(images), encoder(images))
    assert len(encoder.convolutions[:-1]) == len(encoder.convolutions) - 1


def test_in_bfloat16_gradients_are_as_near_to_float32_as_those_of_the_layers():
    encoder = encoder_of(SHAPES["channels first"])
    images = images_of(SHAPES["channels first"])
    exact = gradients(encoder, images)
    for ours, of_layers, expected in zip(
        gradients(encoder, images, autocast=True),
        gradients(encoder, images.normalized(torch.bfloat16), autocast=True),
        exact,
        strict=True,
    ):
        limit = 1.5 * (of_layers - expected).norm() + 1e-3 * expected.norm()
        assert (ours - expected).norm() <= limit


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_statistics_are_brought_into_the_order_of_the_pixels(shape):
    images = images_of(shape)
    order = PixelOrder(image_layout(shape), 4)
    expected = order(images.normalized(torch.float32))
    assert torch.equal(images.normalized(torch.float32, order), expected)
    images.normalizer.update(torch.zeros_like(images.rows))
    assert not torch.equal(images.normalized(torch.float32, order), expected), "stale statistics"


def test_without_further_layers_the_output_may_be_changed_in_place():
    shape = SHAPES["channels first"]
    flags = ModelFlags(nonlinearity="relu", encoder_extra_fc_layers=0, encoder_conv_mlp_layers=())
    encoder = ImageEncoder(flags, image_layout(shape), "convnet_impala")
    expected = gradients(encoder, images_of(shape))
    encoder(images_of(shape)).mul_(torch.linspace(-1, 1, encoder.out_size)).square().sum().backward()
    assert_same([parameter.grad for parameter in encoder.parameters()], expected[1:], rtol=1e-4, atol=1e-4)


def test_frozen_convolutions_get_no_gradient():
    encoder = encoder_of(SHAPES["channels first"])
    encoder.convolutions.requires_grad_(False)
    out = encoder(images_of(SHAPES["channels first"]))
    out.sum().backward()
    assert encoder.convolutions[0].weight.grad is None
    assert encoder.fully_connected[0].weight.grad.abs().sum() > 0


def test_channels_first_finds_the_channels_of_every_layout():
    for shape, channels in zip(SHAPES.values(), (3, 3, 1, 6)):
        assert channels_first(torch.zeros(1, *shape), image_layout(shape)).shape == (1, channels, 40, 44)


def test_a_network_on_a_cpu_gets_raw_images_and_computes_the_same_from_normalised_ones():
    space = gym.spaces.Dict({"obs": gym.spaces.Box(0, 255, (3, 40, 44), np.uint8)})
    model = make_actor_critic(ModelFlags(encoder_subtype="convnet_impala"), space, gym.spaces.Discrete(3))
    obs = {"obs": images_of((3, 40, 44)).rows}
    assert isinstance(model.network_inputs(obs)["obs"], RawImages)
    state = torch.zeros(ROWS, model.state_size)
    in_slices = model.unroll(obs, state)
    model.normalizes_in_slices = False
    assert isinstance(model.network_inputs(obs)["obs"], torch.Tensor)
    torch.testing.assert_close(in_slices.logits, model.unroll(obs, state).logits, rtol=1e-4, atol=1e-5)
