import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_choice import (
    CONVNETS,
    choose_encoder,
    describe_encoders,
    describe_large_layers,
    smallest_side,
)
from sample_factory.spaces.observations import Indices

S = gym.spaces
GRID = S.Box(0, 255, (7, 7, 3), np.uint8)
TABLE = S.Box(-1, 1, (27, 5), np.float32)
FRAMES = S.Box(0, 255, (4, 84, 84), np.uint8)
MEASUREMENTS = S.Box(-1, 1, (23,), np.float32)


@pytest.mark.parametrize(
    ("preset", "side"),
    [
        ("convnet_simple", 36),
        ("convnet_impala", 20),
        ("convnet_atari", 36),
        ("convnet_small", 1),
        ("resnet_impala", 1),
    ],
)
def test_the_smallest_image_of_a_preset(preset, side):
    assert smallest_side(preset) == side
    for conv in CONVNETS.get(preset, ()):
        assert side + 2 * conv.padding >= conv.kernel
        side = (side + 2 * conv.padding - conv.kernel) // conv.stride + 1


def test_the_preset_of_the_flags_is_chosen_where_it_fits():
    for preset in ("convnet_simple", "convnet_impala", "convnet_atari", "convnet_small", "resnet_impala"):
        flags = ModelFlags(encoder_subtype=preset)
        assert choose_encoder(flags, "obs", FRAMES).preset == preset
        assert choose_encoder(flags, "obs", S.Box(0, 255, (3, 72, 128), np.uint8)).preset == preset
    assert choose_encoder(ModelFlags(encoder_type="resnet"), "obs", GRID).preset == "resnet_impala"


def test_a_first_layer_with_very_many_weights_is_described_with_what_would_be_right():
    space = S.Dict(
        obs=S.Box(-1, 1, (999_990,)), speed=S.Box(-1, 1, (10,)), grid=GRID, place=Indices((10**6,))
    )
    [line] = describe_large_layers(ModelFlags(), space)
    assert line.startswith("observation obs, speed float32 [1000000]: its first fully connected layer has")
    assert "1,000,000 inputs and 512M weights" in line and "about 16.4 GB" in line
    assert "a smaller --encoder_mlp_layers, or an encoder of your own (--encoder_custom)" in line
    assert not describe_large_layers(ModelFlags(encoder_mlp_layers=(16,)), space)
    [line] = describe_large_layers(ModelFlags(), S.Dict(obs=S.Box(0, 255, (512, 512, 3), np.uint8)))
    assert "115,200 inputs and 59M weights" in line and "--encoder_conv_mlp_layers" in line


def test_the_line_names_each_observation_and_its_network():
    space = S.Dict(obs=FRAMES, near=GRID, table=TABLE, measurements=MEASUREMENTS, action_mask=MEASUREMENTS)
    assert describe_encoders(ModelFlags(encoder_mlp_layers=(64, 32)), space, {}).split("; ") == [
        "measurements float32 [23]: MLP 64 32",
        "near uint8 [7, 7, 3]: convnet_small (convnet_simple needs 36x36 pixels)",
        "obs uint8 [4, 84, 84]: convnet_simple",
        "table float32 [27, 5]: MLP 64 32 (a table, too small for convnet_simple)",
    ]


def test_indices_get_a_table_of_limited_size():
    flags = ModelFlags(encoder_mlp_layers=(64, 32))
    line = describe_encoders(flags, S.Dict(obs=Indices((500, 3))), {"encoder_subtype": "convnet_atari"})
    assert line == "obs Discrete [500, 3]: table lookup, then MLP 64 32"
    with pytest.raises(ValueError, match=r"obs Discrete \[1000000000\] needs a table of 238 GB, 64 numbers"):
        choose_encoder(flags, "obs", Indices((10**9,)))


@pytest.mark.parametrize(
    ("space", "typed", "message"),
    [
        (
            GRID,
            {"encoder_subtype": "convnet_atari"},
            r"subtype=convnet_atari: .*36x36.*obs uint8 \[7, ",
        ),
        (TABLE, {"encoder_type": "conv"}, r"--encoder_type=conv.*36x36.*obs float32 \[27, 5\].*gets MLP"),
    ],
)
def test_a_typed_preset_that_fits_no_observation_is_an_error_with_the_sizes(space, typed, message):
    flags = ModelFlags(**typed)
    with pytest.raises(ValueError, match=message):
        describe_encoders(flags, S.Dict(obs=space), typed)
    describe_encoders(flags, S.Dict(obs=space), {})  # e.g. a default of the env's family
    describe_encoders(flags, S.Dict(obs=FRAMES, other=space), typed)


def test_a_typed_convolution_may_be_small():
    typed = {"encoder_type": "conv"}
    assert "convnet_small" in describe_encoders(ModelFlags(), S.Dict(obs=GRID), typed)
