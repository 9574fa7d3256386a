import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_factory.spaces.actions import (
    Discretized,
    action_decoder,
    action_encoder,
    action_layout,
    action_leaves,
    batch_action_decoder,
)
from tests.action_spaces import ACTION_SPACES, INTEGERS, random_rows


@settings(max_examples=60, deadline=None)
@given(ACTION_SPACES, st.integers(0, 100))
def test_every_row_is_an_action_of_the_space_and_decodes_alike_alone_and_in_a_batch(space, seed):
    rows = random_rows(space, 3, seed)
    decode = action_decoder(space)
    batch = batch_action_decoder(space)(rows)
    for row, of_batch in zip(rows, iterate(batch_space(space, 3), batch), strict=True):
        action = decode(row)
        assert space.contains(action)
        encode = action_encoder(space)
        assert encode(action).shape == row.shape and encode(action).dtype == np.float32
        np.testing.assert_array_equal(encode(action), encode(of_batch))
        discrete = list(action_layout(space).discrete_actions)
        np.testing.assert_array_equal(encode(action)[discrete], row[discrete])
    rows_of_batch = action_encoder(space, is_batch=True)(batch)
    np.testing.assert_array_equal(rows_of_batch, [action_encoder(space)(decode(row)) for row in rows])


@settings(max_examples=60, deadline=None)
@given(ACTION_SPACES, st.integers(0, 100))
def test_an_encoded_action_decodes_to_itself(space, seed):
    for _, leaf in action_leaves(space):
        if isinstance(leaf, spaces.Box) and np.abs(leaf.high.astype(float)).max() > 1000:
            return  # float32 has not all of its numbers
    space.seed(seed)
    action = space.sample()
    row = action_encoder(space)(action)
    decoded = action_decoder(space)(row)
    np.testing.assert_allclose(action_encoder(space)(decoded), row, rtol=1e-6)
    assert space.contains(decoded)


def test_a_multi_binary_space_is_one_choice_of_two_per_element():
    layout = action_layout(spaces.MultiBinary((2, 3)))
    assert layout.discrete_sizes == (2,) * 6 and layout.num_logits == 12
    action = action_decoder(spaces.MultiBinary((2, 3)))(np.float32([0, 1, 1, 0, 0, 1]))
    assert action.tolist() == [[0, 1, 1], [0, 0, 1]] and action.dtype == np.int8


def test_a_dict_is_its_parts_in_the_order_of_its_keys():
    space = spaces.Dict(
        z=spaces.Discrete(3, start=1), a=spaces.Tuple((spaces.MultiBinary(2), spaces.Box(-1, 1, (1,))))
    )
    action = action_decoder(space)(np.float32([2, 0, 1, 0.5]))
    assert list(action) == ["z", "a"] and action["z"] == 3
    assert action["a"][0].tolist() == [0, 1] and action["a"][1].tolist() == [0.5]
    assert action_layout(space).discrete_sizes == (3, 2, 2) and action_layout(space).box_actions == (3,)


@pytest.mark.parametrize("convert", [action_layout, action_decoder, action_encoder])
def test_an_unsupported_action_space_is_an_error_that_names_the_supported_ones(convert):
    inner = spaces.Tuple((spaces.Discrete(2), spaces.Text(5)))
    for space in (spaces.Text(5), inner, spaces.Dict(a=inner)):
        with pytest.raises(ValueError, match="Discrete, MultiDiscrete or MultiBinary, Box"):
            convert(space)


def test_actions_outside_a_box_are_clipped_to_it():
    assert action_decoder(spaces.Box(-1, 1, (2,)))(np.array([3.0, -0.5], np.float32)).tolist() == [1.0, -0.5]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_rounded_to_the_nearest(dtype):
    low = 0 if np.dtype(dtype).kind == "u" else -2
    space = spaces.Box(low, 2, (8,), dtype)
    numbers = np.float32([-7, -1.6, -1.4, -0.6, 0.4, 0.6, 1.6, 7])
    expected = np.clip([-7, -2, -1, -1, 0, 1, 2, 7], low, 2)
    decoded = action_decoder(space)(numbers)
    assert decoded.tolist() == expected.tolist() and decoded.dtype == dtype
    batch = batch_action_decoder(spaces.Dict(a=space))(np.stack([numbers] * 2))
    assert batch["a"].tolist() == [expected.tolist()] * 2


def test_with_scaled_actions_the_bounds_are_one_unit_from_the_center():
    low = np.array([0, -30, -np.inf, 0, 5, np.finfo(np.float32).min], np.float32)
    high = np.array([1000, 30, 1, np.inf, 5, np.finfo(np.float32).max], np.float32)
    layout = action_layout(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(low, high)), scales=True)
    assert layout.centers == (500, 0, 0, 0, 0, 0) and layout.half_ranges == (500, 30, 1, 1, 1, 1)
    assert layout.is_scaled
    assert not action_layout(spaces.Box(low, high)).is_scaled
    assert not action_layout(spaces.Box(-1, 1, (2,)), scales=True).is_scaled


def test_a_discretized_action_is_an_index_of_equally_spaced_numbers():
    space = Discretized(5, -1.0, 1.0)
    assert [space.to_continuous(i) for i in range(5)] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert space.contains(4) and not space.contains(5)
    assert action_decoder(space)(np.float32([3])) == 3
    assert action_layout(space).discrete_sizes == (5,)
