import pickle
import re

import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.spaces.observations import (
    Indices,
    UnsupportedSpace,
    _warn_of_text,
    batch_to_indices,
    image_layout,
    log,
    observation_layout,
)


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
        "inner/kind": ((1,), np.int32),
        "pair_0": ((2,), np.float32),
        "pair_1": ((2,), np.int32),
    }
    assert layout.space["inner/kind"].sizes == (3,) and layout.space["pair_1"].sizes == (2, 3)
    observation = space.sample()
    observation["inner"]["kind"] = 2
    observation["pair"] = (np.array([0.1, 0.2]), np.array([1, 2]))
    flat = layout.flatten(observation)
    assert flat["inner/kind"].tolist() == [1] and flat["pair_1"].tolist() == [1, 2]
    assert np.allclose(flat["pair_0"], [0.1, 0.2])


def test_an_unsupported_observation_is_an_error_that_names_the_supported_ones():
    with pytest.raises(ValueError, match="observation 'obs' is a Text space; supported are Box"):
        observation_layout(spaces.Text(5))
    empty = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Box(0, 1, (3, 0)))
    with pytest.raises(UnsupportedSpace, match="'b' is Box.*, which has no numbers; leave it out"):
        observation_layout(empty)


BOX = spaces.Box(0, 1, (2,), np.float32)


@pytest.mark.parametrize(
    "space",
    [
        {"a": spaces.Tuple((BOX, BOX)), "a_0": BOX},
        {"a": spaces.Dict(b=BOX), "a/b": BOX},
        {"a": spaces.Dict(b=spaces.Tuple((BOX,))), "a/b_0": spaces.Discrete(2)},
    ],
)
def test_two_parts_with_the_same_key_are_refused_by_it(space):
    with pytest.raises(UnsupportedSpace, match="two observations are called '(a_0|a/b|a/b_0)'"):
        observation_layout(spaces.Dict(space))


def test_keys_that_are_no_texts_become_texts():
    space = spaces.Dict({0: spaces.Box(0, 1, (2,)), 1: spaces.Dict({2: spaces.Discrete(3)})})
    layout = observation_layout(space)
    assert list(layout.space.spaces) == ["0", "1/2"]
    assert layout.flatten({0: np.zeros(2), 1: {2: 1}})["1/2"].tolist() == [1]


class Missions(spaces.Space):
    """A space of texts of an env's own, such as that of MiniGrid."""

    def __init__(self):
        super().__init__(dtype=str)


def test_texts_in_a_dict_or_tuple_are_left_out_with_one_warning(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    _warn_of_text.cache_clear()
    pair = spaces.Tuple((spaces.Text(5), spaces.Discrete(2)))
    space = spaces.Dict(board=spaces.Box(0, 1, (2,)), mission=Missions(), pair=pair)
    layouts = [observation_layout(space) for _ in range(2)]
    assert list(layouts[0].space) == ["board", "pair_1"]
    flat = layouts[0].flatten({"board": np.ones(2), "mission": "go", "pair": ("a", 1)})
    assert flat["board"].tolist() == [1, 1] and flat["pair_1"].tolist() == [1]
    assert [record.message.partition(" is")[0] for record in caplog.records] == [
        "Observation 'mission'",
        "Observation 'pair_0'",
    ]


def test_the_stored_form_of_a_space_is_stored_as_it_is():
    space = spaces.Dict(
        a=spaces.Discrete(7, start=2), b=spaces.MultiDiscrete([2, 3]), c=spaces.MultiBinary(3)
    )
    stored = observation_layout(space).space
    again = observation_layout(stored)
    assert again.space == stored and again.space["b"].sizes == (2, 3)
    assert again.flatten({"a": np.array([6]), "b": np.array([1, 2]), "c": np.ones(3)})["a"].tolist() == [6]


def test_indices_survive_pickling_and_differ_by_their_sizes():
    assert pickle.loads(pickle.dumps(Indices((2, 3)))).sizes == (2, 3)
    assert Indices((2, 3)) == Indices((2, 3)) != Indices((2, 4))


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(5), 5),
        (spaces.Discrete(5), -1),
        (spaces.Discrete(5, start=1), 0),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3])),
        (spaces.MultiDiscrete([2, 3]), np.array([-1, 0])),
    ],
)
def test_an_index_out_of_range_is_an_error_with_the_value(space, bad):
    with pytest.raises(ValueError, match=rf"'obs' is {re.escape(str(bad))}, which is not in its space "):
        observation_layout(space).flatten(bad)


def test_a_batch_of_values_becomes_rows_of_indices():
    assert batch_to_indices(spaces.Discrete(5, start=1), "obs")([1, 5]).tolist() == [[0], [4]]
    batch = np.array([[[0, 1], [2, 0]], [[1, 1], [0, 3]]])
    rows = batch_to_indices(spaces.MultiDiscrete([[2, 2], [3, 4]]), "obs")(batch)
    assert rows.tolist() == [[0, 1, 2, 0], [1, 1, 0, 3]] and rows.dtype == np.int32
    with pytest.raises(ValueError, match=r"'obs' is \[6\], which is not in its space Discrete\(5, start=1\)"):
        batch_to_indices(spaces.Discrete(5, start=1), "obs")([1, 6])


def test_a_large_discrete_space_takes_a_few_bytes_per_observation():
    layout = observation_layout(spaces.Discrete(10**9))
    assert layout.flatten(999_999_999)["obs"].nbytes == 4
    with pytest.raises(UnsupportedSpace, match="at most"):
        observation_layout(spaces.Discrete(2**40))


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
