import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.spaces.observations import observation_layout


def test_observation_spaces_become_dicts_of_boxes():
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "inner": spaces.Dict({"kind": spaces.Discrete(3, start=1), "bits": spaces.MultiBinary(2)}),
            "pair": spaces.Tuple((spaces.Box(0, 1, (2,), np.float64), spaces.MultiDiscrete([2, 3]))),
        }
    )
    layout = observation_layout(space)
    assert {key: (box.shape, box.dtype) for key, box in layout.space.spaces.items()} == {
        "image": ((2, 2, 3), np.uint8),
        "inner/bits": ((2,), np.float32),
        "inner/kind": ((3,), np.float32),
        "pair_0": ((2,), np.float32),
        "pair_1": ((5,), np.float32),
    }
    observation = space.sample()
    observation["inner"]["kind"] = 2
    observation["pair"] = (np.array([0.1, 0.2]), np.array([1, 2]))
    flat = layout.flatten(observation)
    assert flat["inner/kind"].tolist() == [0, 1, 0] and flat["pair_1"].tolist() == [0, 1, 0, 0, 1]
    assert np.allclose(flat["pair_0"], [0.1, 0.2])


def test_an_unsupported_observation_is_an_error_that_names_the_supported_ones():
    with pytest.raises(ValueError, match="observation 'obs' is a Text space; supported are Box"):
        observation_layout(spaces.Text(5))
