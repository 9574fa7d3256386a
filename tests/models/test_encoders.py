import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_choice import CONVNETS, mflop
from sample_factory.models.encoders import IndexLinear, make_encoder, make_observation_encoder
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.spaces.observations import ImageShape, Indices

S = gym.spaces


def image(*shape):
    return S.Box(0, 255, shape, np.uint8)


def floats(*shape):
    return S.Box(-1, 1, shape, np.float32)


def flat_size(preset, shape):
    """Returns the number of features that reach the first fully connected layer."""
    flags = ModelFlags(encoder_subtype=preset, encoder_extra_fc_layers=0)
    encoder = make_observation_encoder(flags, "obs", image(*shape))
    assert encoder(torch.zeros(2, *shape)).shape == (2, encoder.out_size)
    return encoder.out_size


@pytest.mark.parametrize(
    ("preset", "shape", "size"),
    [
        ("convnet_simple", (3, 72, 128), 2304),
        ("convnet_simple", (4, 84, 84), 2048),
        ("convnet_impala", (3, 72, 96), 2240),
        ("convnet_impala", (4, 84, 84), 2592),
        ("convnet_atari", (4, 84, 84), 3136),
        ("convnet_medium", (3, 32, 48), 64 * 3 * 5),
        ("convnet_small", (3, 7, 7), 256),
        ("convnet_small", (3, 35, 20), 64 * 9 * 5),
        ("resnet_impala", (3, 72, 128), 4608),
        ("resnet_impala", (3, 72, 96), 3456),
        ("resnet_impala", (4, 84, 84), 3872),
    ],
)
def test_sizes_of_the_presets(preset, shape, size):
    assert flat_size(preset, shape) == size


@pytest.mark.parametrize("preset", [*CONVNETS, "resnet_impala"])
@pytest.mark.parametrize("widths", [(), (24, 16)])
def test_the_cost_of_a_preset_is_what_torch_counts(preset, widths):
    flags = ModelFlags(encoder_subtype=preset, encoder_conv_mlp_layers=widths, hidden_size=32)
    size = ImageShape(3, 41, 50)
    encoder = make_observation_encoder(flags, "obs", image(*size))
    with FlopCounterMode(display=False) as counter:
        encoder(torch.zeros(1, *size))
    assert mflop(flags, preset, size) == pytest.approx(counter.get_total_flops() / 1e6)


def test_both_layouts_of_a_picture_give_the_same_features():
    chw = make_observation_encoder(ModelFlags(), "obs", image(3, 72, 128))
    hwc = make_observation_encoder(ModelFlags(), "obs", image(72, 128, 3))
    hwc.load_state_dict(chw.state_dict())
    x = torch.randn(2, 3, 72, 128)
    torch.testing.assert_close(hwc(x.permute(0, 2, 3, 1).contiguous()), chw(x), rtol=1e-4, atol=1e-5)


def test_a_stack_of_pictures_equals_one_with_the_channels_of_all():
    stack = make_observation_encoder(ModelFlags(), "obs", image(2, 40, 40, 3))
    one = make_observation_encoder(ModelFlags(), "obs", image(6, 40, 40))
    one.load_state_dict(stack.state_dict())
    x = torch.randn(5, 2, 3, 40, 40)
    assert torch.equal(stack(x.movedim(2, 4)), one(x.flatten(1, 2)))


def modules_of(space, **flags):
    encoder = make_observation_encoder(ModelFlags(**flags), "obs", space)
    assert encoder(torch.zeros(2, *space.shape)).shape == (2, encoder.out_size)
    return {type(module).__name__ for module in encoder.modules()}


@pytest.mark.parametrize("preset", ["convnet_simple", "convnet_impala", "convnet_atari"])
def test_every_image_has_a_network_whatever_its_size(preset):
    for side in (1, 2, 4, 5, 7, 19, 20, 35, 36):
        has_convolutions = "Conv2d" in modules_of(image(side, side, 3), encoder_subtype=preset)
        assert has_convolutions == (side >= 5)


def test_a_table_of_floats_goes_through_an_mlp():
    assert "Conv2d" not in modules_of(floats(27, 5))
    assert "Conv2d" not in modules_of(floats(30, 30))
    assert "Conv2d" in modules_of(image(30, 30))


def test_more_than_four_dimensions_need_an_encoder_of_the_users():
    with pytest.raises(ValueError, match=r"voxels uint8 \[4, 2, 8, 8, 8\] has more .* register an encoder"):
        make_observation_encoder(ModelFlags(), "voxels", image(4, 2, 8, 8, 8))


def linear_sizes(module):
    return [(m.in_features, m.out_features) for m in module.modules() if isinstance(m, nn.Linear)]


def test_fully_connected_layers_after_the_convolutions():
    flags = ModelFlags(hidden_size=64, encoder_extra_fc_layers=2)
    assert linear_sizes(make_observation_encoder(flags, "obs", image(3, 72, 128))) == [
        (2304, 64),
        (64, 64),
    ]
    flags = ModelFlags(hidden_size=64, encoder_conv_mlp_layers=(32, 16))
    assert linear_sizes(make_observation_encoder(flags, "obs", image(3, 72, 128))) == [
        (2304, 32),
        (32, 16),
    ]


def test_a_vector_goes_through_the_mlp_layers():
    flags = ModelFlags(encoder_mlp_layers=(32, 16))
    assert linear_sizes(make_observation_encoder(flags, "obs", floats(5))) == [(5, 32), (32, 16)]
    assert linear_sizes(make_observation_encoder(flags, "obs", floats())) == [(1, 32), (32, 16)]


def test_mlp_types_flatten_images():
    flags = ModelFlags(encoder_type="mlp", encoder_mlp_layers=(32,))
    assert linear_sizes(make_observation_encoder(flags, "obs", image(3, 4, 4))) == [(48, 32)]
    flags = ModelFlags(encoder_subtype="mlp_mujoco", hidden_size=20)
    assert linear_sizes(make_observation_encoder(flags, "obs", image(3, 4, 4))) == [(48, 20), (20, 20)]


def test_resnet_is_chosen_by_type_or_by_subtype():
    by_type = make_observation_encoder(ModelFlags(encoder_type="resnet"), "obs", image(3, 32, 32))
    by_subtype = make_observation_encoder(
        ModelFlags(encoder_subtype="resnet_impala"), "obs", image(3, 32, 32)
    )
    assert by_type.state_dict().keys() == by_subtype.state_dict().keys()
    assert len([m for m in by_type.modules() if isinstance(m, nn.Conv2d)]) == 15


@pytest.mark.parametrize("nonlinearity", ["elu", "relu", "tanh"])
def test_every_nonlinearity_trains(nonlinearity):
    for preset in ("convnet_simple", "resnet_impala"):
        flags = ModelFlags(nonlinearity=nonlinearity, encoder_subtype=preset)
        encoder = make_observation_encoder(flags, "obs", image(3, 44, 44))
        encoder(torch.randn(2, 3, 44, 44)).sum().backward()
        assert all(p.grad is not None for p in encoder.parameters())


MIXED_SPACE = S.Dict(obs=image(3, 72, 128), b=S.Box(-1, 1, (5,)), action_mask=S.Box(0, 1, (4,), np.uint8))


def test_all_observations_are_encoded_and_concatenated_in_sorted_order():
    encoder = make_encoder(ModelFlags(encoder_mlp_layers=(7,), hidden_size=11), MIXED_SPACE)
    observations = {"obs": torch.randn(2, 3, 72, 128), "b": torch.randn(2, 5)}
    features = encoder(observations)
    assert encoder.out_size == 18 and features.shape == (2, 18)
    changed = encoder({**observations, "b": torch.zeros(2, 5)})
    assert (changed != features).any(dim=0)[:7].any() and torch.equal(changed[:, 7:], features[:, 7:])


def test_a_mask_alone_is_nothing_to_encode():
    with pytest.raises(ValueError, match="nothing to encode"):
        make_encoder(ModelFlags(), S.Dict(action_mask=S.Box(0, 1, (4,), np.uint8)))


@pytest.mark.parametrize("sizes", [(7,), (3, 40, 2)])
def test_a_lookup_of_indices_equals_a_linear_layer_on_scaled_one_hot_vectors(sizes):
    layer = IndexLinear(sizes, 5)
    indices = torch.stack([torch.randint(n, (9,)) for n in sizes], dim=1)
    one_hot = [
        min(n**0.5, 5) * nn.functional.one_hot(column, n).float()
        for n, column in zip(sizes, indices.unbind(1))
    ]
    expected = nn.functional.linear(torch.cat(one_hot, dim=1), layer.weight.t(), layer.bias)
    torch.testing.assert_close(layer(indices), expected)


def test_a_normalised_one_hot_vector_has_about_the_scale_of_a_lookup():
    n = 16
    normalizer = RunningNormalizer((n,))
    one_hot = torch.eye(n).repeat(100, 1)
    normalizer.update(one_hot)
    scale = normalizer.normalize(one_hot).max()
    assert float(scale) == pytest.approx(float(IndexLinear((n,), 3).scales), rel=0.05)


def test_indices_in_rows_that_are_not_used_may_be_any_number():
    assert IndexLinear((7, 2), 5)(torch.tensor([[2**31 - 1, -(2**31)]])).shape == (1, 5)


def test_discrete_observations_are_encoded_by_index():
    flags = ModelFlags(encoder_mlp_layers=(6, 4))
    encoder = make_encoder(flags, S.Dict(obs=Indices((100_000,)), place=Indices((3, 5))))
    rows = {"obs": torch.tensor([[99_999], [0]]), "place": torch.tensor([[2, 4], [0, 0]])}
    assert encoder(rows).shape == (2, encoder.out_size) == (2, 8)
    shapes = [tuple(module.weight.shape) for module in encoder.modules() if isinstance(module, IndexLinear)]
    assert shapes == [(100_000, 6), (8, 6)]


def test_without_layers_indices_still_get_a_table():
    encoder = make_encoder(ModelFlags(encoder_mlp_layers=(), hidden_size=6), S.Dict(obs=Indices((3,))))
    assert encoder({"obs": torch.tensor([[2]])}).shape == (1, 6)


def test_all_vectors_of_an_observation_share_one_mlp():
    space = S.Dict(a=floats(3), b=image(3, 72, 128), c=floats(), d=Indices((4,)), e=floats(2))
    encoder = make_encoder(ModelFlags(encoder_mlp_layers=(16,), hidden_size=8), space)
    assert encoder.groups == [("a", "c", "e"), ("b",), ("d",)]
    assert linear_sizes(encoder.encoders[0]) == [(6, 16)]
    rows = {key: torch.zeros(2, *box.shape) for key, box in space.spaces.items()}
    assert encoder({**rows, "d": rows["d"].long()}).shape == (2, encoder.out_size)


def test_an_mlp_on_vectors_can_combine_them():
    # The change of the output by one vector depends on another one, unlike in a sum of two networks.
    torch.manual_seed(0)
    encoder = make_encoder(ModelFlags(encoder_mlp_layers=(16,)), S.Dict(goal=floats(2), position=floats(2)))
    zero = torch.zeros(1, 2)
    one = torch.ones(1, 2)

    def sum_of_features(goal, position):
        return encoder({"goal": goal, "position": position}).sum()

    near = sum_of_features(one, one) - sum_of_features(one, zero)
    far = sum_of_features(zero, one) - sum_of_features(zero, zero)
    assert not torch.allclose(near, far)
