import numpy as np
import pytest

from sample_factory.envs.abilities import NamesActions


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (3, "3"),
        (np.array([[0.25, -1], [2, 1e6]]), "0.25 -1 2 1e+06"),
        (np.array([True, False]), "1 0"),
        ((1, np.float32([0.5])), "1 0.5"),
        ({"buttons": np.int8([1, 0]), "hand": (np.array(2), {"force": 0.5})}, "1 0 2 0.5"),
    ],
)
def test_an_action_without_names_is_its_numbers_in_order(action, text):
    assert NamesActions().action_text(action) == f"action {text}"
