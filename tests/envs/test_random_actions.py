import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.spaces.actions import ACTION_MASK, action_decoder, action_layout, batch_action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds


def with_mask(action_space, mask):
    space = spaces.Dict({ACTION_MASK: spaces.Box(0, 1, (len(mask),), np.uint8)})
    kinds = AgentKinds.one(space, action_space, 1)
    rows = ObservationRows.allocate(kinds)
    rows.arrays[ACTION_MASK][:] = mask
    return kinds, rows


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (spaces.Discrete(4, start=3), [0, 1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1]),
        (spaces.MultiDiscrete([[2, 2], [2, 3]]), [0, 1, 1, 0, 0, 1, 1, 0, 1]),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,)), spaces.Discrete(3))), [1, 0, 0, 1, 1]),
        (spaces.MultiBinary((1, 3)), [1, 1, 0, 1, 1, 0]),
        (spaces.Dict(z=spaces.MultiBinary(1), a=spaces.Box(0, 3, (2,), np.int8)), [1, 0]),
    ],
)
def test_actions_that_a_mask_forbids_are_never_drawn_and_all_others_are(space, mask):
    kinds, rows = with_mask(space, mask)
    draw, layout = RandomActions(kinds, 0), action_layout(space)
    drawn = np.concatenate([draw(rows) for _ in range(100)])
    assert all(space.contains(action_decoder(space)(row)) for row in drawn)
    choices = drawn[:, list(layout.discrete_actions)].astype(int)
    offsets = np.cumsum([0, *layout.discrete_sizes[:-1]])
    assert set((choices + offsets).ravel()) == set(np.flatnonzero(mask))


def test_one_seed_gives_one_series_of_actions_for_every_agent():
    kinds = AgentKinds.one(spaces.Dict({"obs": spaces.Box(0, 1, (1,))}), spaces.Discrete(1000), 3)
    first, second = (RandomActions(kinds, 7)(ObservationRows.allocate(kinds)) for _ in range(2))
    assert first.shape == (3, 1) and first.dtype == np.float32
    assert np.array_equal(first, second) and len(np.unique(first)) == 3


def test_numbers_fill_their_bounds_and_have_a_spread_where_there_are_none():
    largest = np.finfo(np.float32).max  # as good as no bound
    low = np.array([-2, -np.inf, 0, -largest], np.float32)
    high = np.array([4, np.inf, np.inf, largest], np.float32)
    space = spaces.Dict(choice=spaces.Discrete(2), numbers=spaces.Box(low, high))
    kinds = AgentKinds.one(spaces.Dict({"obs": spaces.Box(0, 1, (1,))}), space, 1000)
    drawn = RandomActions(kinds, 0)(ObservationRows.allocate(kinds))
    bounded, free, positive, also_free = drawn[:, 1:].T
    assert -2 <= bounded.min() < -1.9 and 3.9 < bounded.max() <= 4
    for numbers in (free, also_free):
        assert -5 < numbers.min() < -1 and 1 < numbers.max() < 5
    assert positive.min() == 0 and 1 < positive.max() < 5


def test_each_integer_within_bounds_is_equally_likely():
    space = spaces.Box(0, 3, (1,), np.uint8)
    kinds = AgentKinds.one(spaces.Dict({"obs": spaces.Box(0, 1, (1,))}), space, 20_000)
    drawn = RandomActions(kinds, 0)(ObservationRows.allocate(kinds))
    _, counts = np.unique(batch_action_decoder(space)(drawn), return_counts=True)
    assert (counts / len(drawn)).tolist() == pytest.approx([0.25] * 4, abs=0.02)
