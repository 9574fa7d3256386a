import cv2
import numpy as np
import pytest

from sample_factory.envs.doom.shrink import make_shrink


@pytest.mark.parametrize(
    "screen_shape, shape", [((120, 160), (72, 128)), ((144, 256), (72, 128)), ((120, 160), (42, 42))]
)
def test_the_picture_is_resized_to_the_nearest_neighbours_in_place(screen_shape, shape):
    screen = np.random.default_rng(0).integers(0, 256, (3, *screen_shape), np.uint8)
    trajectories = np.zeros((2, 4, 3, *shape), np.uint8)
    make_shrink(screen_shape, shape)(screen, trajectories[1, 2])
    expected = [cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_NEAREST) for plane in screen]
    np.testing.assert_array_equal(trajectories[1, 2], expected)
    trajectories[1, 2] = 0
    assert not trajectories.any()


def test_rows_that_are_not_contiguous_are_refused_rather_than_lost():
    screen = np.zeros((3, 120, 160), np.uint8)
    with pytest.raises(ValueError):
        make_shrink((120, 160), (72, 128))(screen, np.zeros((72, 128, 3), np.uint8).transpose(2, 0, 1))
