import gymnasium as gym
import numpy as np
import pytest

from sample_factory.sampling.inference.number_reports import CHECK_EVERY, SpaceCheck
from sample_factory.spaces.observations import Indices

BOX = gym.spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, 5000], np.float32))


def check_of(space, key="obs"):
    return SpaceCheck(gym.spaces.Dict({key: space}))


def test_values_beyond_a_bound_are_found_in_their_rows():
    check = check_of(BOX, "speed")
    outside = check.outside({"speed": np.array([[0, 0], [0, 6000], [-2, 0], [1, 5000]], np.float32)})
    assert outside is not None and outside[0].tolist() == [False, True, True, False]
    assert outside[1] == "its observation 'speed' has the value 6000.0, outside of its space"


def test_rounding_is_no_mistake():
    assert check_of(BOX).outside({"obs": np.array([[-1.0001, -1e30], [1.0001, 5004]], np.float32)}) is None


def test_of_all_batches_the_first_one_and_one_in_a_hundred_are_checked():
    check = check_of(BOX)
    wrong = {"obs": np.full((1, 2), 9.0, np.float32)}
    found = [number for number in range(2 * CHECK_EVERY + 1) if check.outside(wrong) is not None]
    assert found == [0, CHECK_EVERY, 2 * CHECK_EVERY]


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (gym.spaces.Box(0, 1, (3,), np.uint8), 2),
        (gym.spaces.Box(-5, 5, (3,), np.int8), -6),
        (Indices([3, 3, 3]), -1),
        (gym.spaces.Box(0, 1, (3,), np.float32), -0.1),
    ],
)
def test_all_kinds_of_numbers_are_checked(space, value):
    check = check_of(space)
    outside = check.outside({"obs": np.array([[0, 0, 1], [0, 0, value]], space.dtype)})
    assert outside is not None and outside[0].tolist() == [False, True]


def test_what_the_dtype_cannot_exceed_is_not_compared():
    largest = np.finfo(np.float32).max
    boxes = {
        "image": gym.spaces.Box(0, 255, (2,), np.uint8),
        "free": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "large": gym.spaces.Box(-largest, largest, (2,), np.float32),
    }
    check = SpaceCheck(gym.spaces.Dict(boxes))
    assert check.outside({}) is None, "no array is looked at"
