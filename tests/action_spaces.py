"""Action spaces of every supported kind, for generated tests."""

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from sample_factory.spaces.actions import action_layout

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)


@st.composite
def box_spaces(draw):
    dtype = np.dtype(draw(st.sampled_from([*INTEGERS, np.float16, np.float32, np.float64, np.bool_])))
    shape = draw(SHAPES)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.bool_)
    if draw(st.booleans()):  # the whole range of the dtype
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        return spaces.Box(limits.min, limits.max, shape, dtype.type)
    low = draw(st.integers(0 if dtype.kind == "u" else -100, 100))
    return spaces.Box(low, min(127, low + draw(st.integers(1, 100))), shape, dtype.type)


LEAVES = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
    st.builds(
        lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.integers(-3, 3),
    ),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 4), st.lists(st.integers(1, 3), min_size=2))),
    box_spaces(),
)
KEYS = st.sampled_from(["move", "aim", "a_0", "Z", "1"])
ACTION_SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.lists(st.tuples(KEYS, inner), min_size=1, max_size=3).map(
            lambda parts: spaces.Dict(**dict(parts))
        ),
    ),
    max_leaves=5,
)


def random_rows(space, count, seed):
    """Rows as a policy may write them: choices, and numbers far outside of bounds too."""
    layout = action_layout(space)
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, layout.num_action_values), np.float32)
    rows[:, layout.discrete_actions] = rng.integers(
        layout.discrete_sizes, size=(count, len(layout.discrete_sizes))
    )
    size = (count, len(layout.box_actions))
    rows[:, layout.box_actions] = rng.normal(0, 10.0 ** rng.integers(0, 21, size), size)
    return rows
