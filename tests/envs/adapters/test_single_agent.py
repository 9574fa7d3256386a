"""Gymnasium envs with one agent."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.runtime.log import log
from tests.envs.adapters.countdown import Countdown, drive
from tests.envs.ledger_envs import Habits, Script, Single


def test_the_observation_after_an_episode_is_the_first_of_the_next():
    seen, results = drive(adapt(Countdown()), [0] * 7)
    assert [tuple(observed["obs"][0]) for observed in seen] == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1),
    ]  # fmt: skip
    assert [r.terminated[0] for r in results] == [False, False, True, False, False, False, False]
    assert [r.truncated[0] for r in results] == [False, False, False, False, False, True, False]
    assert [result.end_infos for result in results[:4]] == [{}, {}, {0: {"time": 3}}, {}]


class DrawsInPlace(Single):
    """Draws each picture into the same array: the number of steps so far."""

    def __init__(self):
        super().__init__(
            Script((9,), ("terminated",), (1,), None, False),
            Habits("float", "bool", False, frozenset(), False),
        )
        self.picture = np.zeros((4, 4, 3), np.uint8)

    def render(self):
        self.picture[:] = len(self.lives[0].steps)
        return self.picture


@pytest.mark.parametrize("make_env", [DrawsInPlace, lambda: SyncVectorEnv([DrawsInPlace])])
def test_a_picture_stays_what_it_was_when_the_env_draws_the_next_one(make_env):
    env = adapt(make_env())
    rows = ObservationRows.allocate(env.kinds)
    env.reset(None, rows)
    pictures = []
    for _ in range(5):
        env.step(np.zeros((1, 1), np.float32), rows)
        pictures.append(env.render())
    assert [int(picture[0, 0, 0]) for picture in pictures] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("size", "warnings"), [(2, 0), (5, 1)])
def test_an_action_space_that_changes_is_named_once(size, warnings, caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    env = Countdown(length=2)
    first = env.action_space = spaces.Discrete(2)
    adapted = adapt(env)
    rows = ObservationRows.allocate(adapted.kinds)
    adapted.reset(0, rows)
    for _ in range(6):
        adapted.step(np.zeros((1, 1), np.float32), rows)
        env.action_space = spaces.Discrete(size)  # another object in each step
    assert len(caplog.messages) == warnings
    if warnings:
        assert f"changed from {first} to Discrete(5)" in caplog.text and "action_mask" in caplog.text


def test_a_cost_that_is_no_number_is_refused():
    class Named(Countdown):
        def step(self, action):
            return *super().step(action)[:-1], {"cost": "much"}

    with pytest.raises(EnvContractError, match=r"'much' for info\['cost'\]; it should be a number"):
        drive(adapt(Named()), [0])
