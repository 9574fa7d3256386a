import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.envs.protocol import (
    EnvContractError,
    ObservationRows,
    active_agents,
)
from sample_factory.spaces.agent_kinds import AgentKinds


def test_activity_is_none_where_all_agents_act():
    assert active_agents([{}, {"is_active": True}]) is None
    assert active_agents([{}, {"is_active": False}]).tolist() == [True, False]


def rows_of(*shape, dtype=np.float32, num_agents=2):
    box = spaces.Box(0, 255, shape, dtype)
    return ObservationRows.allocate(AgentKinds.one(spaces.Dict({"obs": box}), spaces.Discrete(2), num_agents))


def test_a_batch_is_written_to_all_rows_at_once():
    rows = rows_of(3)
    rows.write_all({"obs": np.arange(6.0).reshape(2, 3)})
    assert rows.view(1)["obs"].tolist() == [3, 4, 5]
    rows.clear(1)
    assert rows.arrays["obs"][:, 0].tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize("batch", [np.zeros((1, 3)), np.zeros(3), np.zeros((2, 1)), np.full((2, 3), "a")])
def test_a_batch_that_does_not_fit_is_refused_not_broadcast(batch):
    with pytest.raises(EnvContractError, match="but its observation space says"):
        rows_of(3).write_all({"obs": batch})


def test_a_scalar_observation_has_a_writable_view():
    rows = rows_of()
    rows.view(1)["obs"][...] = 5
    assert rows.arrays["obs"][:, 0].tolist() == [0, 5]
