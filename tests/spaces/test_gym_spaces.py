import pickle

import numpy as np

from sample_factory.spaces.action_layout import action_layout
from sample_factory.spaces.gym_spaces import Discretized, action_decoder


def test_a_discretized_action_is_an_index_and_stands_for_an_equally_spaced_number():
    space = Discretized(5, -1.0, 1.0)
    assert [space.to_continuous(i) for i in range(5)] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert space.contains(4) and not space.contains(5)
    assert action_decoder(space)(np.float32([3])) == 3
    assert action_layout(space).discrete_sizes == (5,)


def test_a_discretized_space_reaches_other_processes_and_is_readable():
    space = pickle.loads(pickle.dumps(Discretized(3, -2.5, 2.5)))
    assert space.to_continuous(2) == 2.5 and repr(space) == "Discretized(3, -2.5, 2.5)"
