import cv2
import numpy as np
import pytest

from sample_factory.envs.doom.observation import NUM_MEASUREMENTS, make_resize, measurement_reader


def read(**known: float) -> list[float]:
    measure = measurement_reader({name: place for place, name in enumerate(known)})
    vector = measure(list(known.values()))
    assert vector.shape == (NUM_MEASUREMENTS,) and vector.dtype == np.float32
    return vector.tolist()


def test_the_order_and_the_scales_are_those_of_the_paper():
    vector = read(
        USER2=20.0,
        HEALTH=60.0,
        ARMOR=15.0,
        SELECTED_WEAPON=3.0,
        SELECTED_WEAPON_AMMO=30.0,
        ATTACK_READY=1.0,
        PLAYER_COUNT=4.0,
        WEAPON0=1.0,
        WEAPON7=2.0,
        AMMO0=15.0,
        AMMO7=45.0,
    )
    expected = [3, 2, 2, 0.5, 2, 1, 0.8, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3]
    np.testing.assert_allclose(vector, expected, rtol=1e-6)


def test_missing_variables_are_read_as_zero_and_one_player():
    np.testing.assert_allclose(read(), [0] * 6 + [0.2] + [0] * 16, rtol=1e-6)


def test_ammo_is_capped_and_negative_values_are_clipped():
    vector = read(
        SELECTED_WEAPON=-1.0, SELECTED_WEAPON_AMMO=1000.0, HEALTH=-999900.0, WEAPON1=-1.0, AMMO2=999.0
    )
    assert vector[0] == 0 and vector[1] == 5 and vector[2] == 0
    assert vector[8] == 0 and vector[17] == 5


@pytest.mark.parametrize(
    "screen_shape, shape", [((120, 160), (72, 128)), ((144, 256), (72, 128)), ((120, 160), (42, 42))]
)
def test_the_picture_is_resized_to_the_nearest_neighbours(screen_shape, shape):
    screen = np.random.default_rng(0).integers(0, 256, (3, *screen_shape), np.uint8)
    resized = make_resize(screen_shape, shape)(screen)
    expected = [cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_NEAREST) for plane in screen]
    np.testing.assert_array_equal(resized, expected)
