"""Multi-agent envs in the style of v1, with lists that have an entry per agent."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import ObservationRows
from tests.counting import EPISODE, STEP, CountingEnv
from tests.envs.adapters.countdown import drive
from tests.mixed import MixedCounting


def test_each_agent_has_its_rewards_ends_and_infos():
    env = adapt(CountingEnv(num_agents=2, first_sleeper=1))
    rows = ObservationRows.allocate(env.kinds)
    assert env.reset(None, rows) is None
    results = [env.step(np.zeros((2, 1), np.float32), rows) for _ in range(4)]
    assert [result.rewards for result in results] == [[1, 1], [2, 2], [3, 3], [1, 4]]
    assert [result.terminated for result in results] == [[False] * 2] * 2 + [[True, False], [False, True]]
    assert [set(result.end_infos) for result in results] == [set(), set(), {0}, {1}]
    assert [None if result.active is None else result.active.tolist() for result in results] == [
        None,
        None,
        [True, False],
        None,
    ]
    assert rows.arrays["obs"][:, 0, [EPISODE, STEP]].tolist() == [[1, 1], [1, 0]]


def test_a_list_of_spaces_needs_an_entry_per_agent():
    class TooFew(MixedCounting):
        action_spaces = [gym.spaces.Discrete(2)]

    with pytest.raises(ValueError, match="TooFew has 1 action_spaces for 3 agents"):
        adapt(TooFew())


def test_agents_and_their_spaces_are_found_inside_gymnasiums_wrappers():
    class WithBase(MixedCounting, gym.Env):
        pass

    env = adapt(gym.Wrapper(gym.Wrapper(WithBase())))
    assert env.num_agents == 3 and env.kinds == adapt(MixedCounting()).kinds
    _, (result,) = drive(env, [0])
    assert result.rewards == [1.0, 1.0, 1.0]
