import numpy as np
import pytest

from sample_factory.families.doom import action_spaces as spaces
from sample_factory.families.doom.action_spaces import button_decoder, flat


def test_index_zero_presses_nothing_and_index_k_presses_button_k():
    decode = button_decoder(flat(4))
    assert [decode(i) for i in range(4)] == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_groups_follow_each_other_and_the_turn_is_in_degrees():
    decode = button_decoder(spaces.DISCRETIZED_NO_WEAPON)
    assert decode((1, 2, 1, 0, 0)) == [1, 0, 0, 1, 1, 0, -10]
    assert decode((0, 0, 0, 1, 10)) == [0, 0, 0, 0, 0, 1, 10]
    assert decode((0, 0, 0, 0, 5)) == [0] * 7
    assert button_decoder(spaces.FULL)((0, 0, 7, 0, 0, 1))[-1] == -11.25


def test_integers_may_come_as_a_float_array():
    decode = button_decoder(spaces.FULL_WITH_USE)
    action = (2, 1, 3, 1, 0, 1, 20)
    assert decode(np.array(action, np.float32)) == decode(action)


def test_a_continuous_turn_is_clipped_and_scaled():
    decode = button_decoder(spaces.HYBRID)
    for turn, degrees in ((0.5, 3.75), (-3.0, -7.5)):
        assert decode(np.array([0, 0, 0, 0, 0, turn], np.float32)) == [0] * 8 + [degrees]
        assert decode((0, 0, 0, 0, 0, np.array([turn], np.float32)))[-1] == degrees


def test_an_action_of_the_wrong_length_is_an_error():
    with pytest.raises(ValueError):
        button_decoder(spaces.BASIC)((0, 1, 2))
