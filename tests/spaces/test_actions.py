import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.spaces.actions import Discretized, action_decoder, action_encoder, action_layout

SPACES = [
    spaces.Discrete(4),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(-1, 1, (2, 2), np.float64),
    spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2, start=1))),
    spaces.Tuple((spaces.Discrete(3), spaces.Box(-2, 2, (2,)), spaces.MultiDiscrete([5, 6]))),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_an_encoded_action_decodes_to_itself(space):
    space.seed(0)
    encode = action_encoder(space)
    decode = action_decoder(space)
    for _ in range(20):
        row = encode(space.sample())
        assert row.shape == (action_layout(space).num_action_values,) and row.dtype == np.float32
        decoded = decode(row)
        assert space.contains(decoded)
        assert np.allclose(encode(decoded), row)


@pytest.mark.parametrize("convert", [action_layout, action_decoder, action_encoder])
def test_an_unsupported_action_space_is_an_error_that_names_the_supported_ones(convert):
    for space in (spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Text(5)))):
        with pytest.raises(ValueError, match="Discrete, MultiDiscrete .*, Box"):
            convert(space)


def test_actions_outside_a_box_are_clipped_to_it():
    assert action_decoder(spaces.Box(-1, 1, (2,)))(np.array([3.0, -0.5], np.float32)).tolist() == [1.0, -0.5]


def test_a_discretized_action_is_an_index_of_equally_spaced_numbers():
    space = Discretized(5, -1.0, 1.0)
    assert [space.to_continuous(i) for i in range(5)] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert space.contains(4) and not space.contains(5)
    assert action_decoder(space)(np.float32([3])) == 3
    assert action_layout(space).discrete_sizes == (5,)
