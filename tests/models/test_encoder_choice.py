import itertools

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_choice import (
    CONVNETS,
    choose_encoder,
    describe_costs,
    describe_encoders,
    mflop,
    smallest_side,
)
from sample_factory.spaces.observations import Indices

S = gym.spaces
GRID = S.Box(0, 255, (7, 7, 3), np.uint8)
TABLE = S.Box(-1, 1, (27, 5), np.float32)
FRAMES = S.Box(0, 255, (4, 84, 84), np.uint8)
MEASUREMENTS = S.Box(-1, 1, (23,), np.float32)
BY_SIZE = ModelFlags(encoder_subtype="auto")


def picture(*shape):
    return S.Box(0, 255, shape, np.uint8)


def chosen(space, flags=BY_SIZE):
    return choose_encoder(flags, "obs", space).preset


def cost(space, flags=BY_SIZE):
    choice = choose_encoder(flags, "obs", space)
    return mflop(flags, choice.preset, choice.image.size)


@pytest.mark.parametrize(
    ("preset", "side"),
    [
        ("convnet_simple", 36),
        ("convnet_impala", 20),
        ("convnet_atari", 36),
        ("convnet_medium", 12),
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


def test_a_picture_of_12_to_35_pixels_takes_at_most_8_mflop_also_stacked():
    for height, width in itertools.product(
        (12, 13, 16, 17, 20, 24, 32, 35), (12, 15, 19, 20, 21, 28, 35, 64)
    ):
        for shape in ((height, width), (3, height, width), (12, height, width), (4, height, width, 3)):
            assert cost(picture(*shape)) <= 8, shape


def test_small_pictures_get_the_most_detailed_network_that_is_cheap_and_large_ones_the_usual_one():
    assert chosen(picture(16, 16, 3)) == "convnet_small"
    assert chosen(picture(32, 48, 3)) == chosen(picture(28, 28)) == "convnet_medium"
    assert chosen(picture(35, 200, 3)) == "convnet_impala", "the cheapest"
    assert chosen(picture(36, 36, 3)) == chosen(picture(480, 640, 3)) == "convnet_atari"
    assert chosen(picture(4, 4, 3)) == "mlp"


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_fields_of_a_board_are_not_merged(dtype):
    assert chosen(S.Box(0, 1, (19, 19, 17), dtype)) == "convnet_small"
    assert chosen(S.Box(0, 1, (8, 8, 111), dtype)) == "convnet_small"


def test_weights_of_small_pictures_keep_their_network_where_the_flags_name_a_larger_one():
    for preset in ("convnet_simple", "convnet_atari"):
        assert chosen(picture(32, 48, 3), ModelFlags(encoder_subtype=preset)) == "convnet_small"


def test_a_costly_network_that_nobody_named_is_described_with_cheaper_ones():
    large = S.Dict(obs=picture(240, 320, 3))
    (line,) = describe_costs(BY_SIZE, large)
    assert line.startswith("observation obs uint8 [240, 320, 3]: convnet_atari takes 257 MFLOP a sample")
    assert "--encoder_subtype=convnet_impala, which takes 81" in line
    assert not describe_costs(ModelFlags(encoder_subtype="convnet_atari"), large)
    small = S.Dict(obs=picture(32, 48, 3), place=MEASUREMENTS)
    (line,) = describe_costs(ModelFlags(), small)
    assert "convnet_small takes 30 MFLOP" in line and "--encoder_subtype=auto, which takes 2" in line
    assert not describe_costs(BY_SIZE, small)
    (line,) = describe_costs(BY_SIZE, S.Dict(obs=S.Box(0, 1, (19, 19, 17), np.uint8)))
    assert "--encoder_subtype" not in line and "--encoder_custom" in line


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
        (GRID, {"encoder_subtype": "convnet_atari"}, r"subtype=convnet_atari: .*36x36.*obs uint8 \[7, "),
        (
            S.Box(0, 1, (3, 3), np.uint8),
            {"encoder_type": "conv", "encoder_subtype": "auto"},
            r"--encoder_type=conv --encoder_subtype=auto: .*36x36.*\[3, 3\] is smaller.*gets MLP",
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


def test_a_network_by_size_takes_any_picture_and_any_table():
    space = S.Dict(board=S.Box(0, 1, (3, 3), np.uint8), grid=GRID, table=TABLE)
    assert describe_encoders(BY_SIZE, space, {"encoder_subtype": "auto"}).count("; ") == 2


def test_a_typed_convolution_may_be_small():
    typed = {"encoder_type": "conv"}
    assert "convnet_small" in describe_encoders(ModelFlags(), S.Dict(obs=GRID), typed)
