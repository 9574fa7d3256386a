"""Images among the observations."""

import pytest

from sample_factory.spaces.images import image_layout


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((72, 128), (1, 72, 128)),
        ((3, 72, 128), (3, 72, 128)),
        ((72, 128, 3), (3, 72, 128)),
        ((4, 84, 84), (4, 84, 84)),
        ((84, 84, 4), (4, 84, 84)),
        ((12, 72, 128), (12, 72, 128)),
        ((13, 13, 5), (5, 13, 13)),
        ((8, 8, 111), (111, 8, 8)),
        ((2, 12, 12), (2, 12, 12)),  # highway-env's racetrack
        ((9, 7, 3), (3, 9, 7)),  # all cells of MiniGrid's DistShift
        ((11, 9, 2), (2, 11, 9)),
        ((8, 8, 8), (8, 8, 8)),
        ((4, 84, 84, 3), (12, 84, 84)),
        ((4, 3, 84, 84), (12, 84, 84)),
    ],
)
def test_channels_are_recognised_by_their_number_or_by_equal_sides(shape, size):
    assert image_layout(shape).size == size
