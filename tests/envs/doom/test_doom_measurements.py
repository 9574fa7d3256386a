import numpy as np

from sample_factory.envs.doom.measurements import NUM_MEASUREMENTS, MeasurementReader


def read(**known: float) -> list[float]:
    into = np.full(NUM_MEASUREMENTS, np.nan, np.float32)
    reader = MeasurementReader({name: place for place, name in enumerate(known)})
    reader.write(list(known.values()), into)
    return into.tolist()


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


def test_missing_variables_read_as_nothing_and_one_player():
    np.testing.assert_allclose(read(), [0] * 6 + [0.2] + [0] * 16, rtol=1e-6)


def test_ammo_is_capped_and_what_cannot_be_negative_is_not():
    vector = read(
        SELECTED_WEAPON=-1.0, SELECTED_WEAPON_AMMO=1000.0, HEALTH=-999900.0, WEAPON1=-1.0, AMMO2=999.0
    )
    assert vector[0] == 0 and vector[1] == 5 and vector[2] == 0
    assert vector[8] == 0 and vector[17] == 5
