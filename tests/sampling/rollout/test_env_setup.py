import logging

import pytest

from sample_factory.runtime.log import log
from sample_factory.sampling.rollout.env_setup import log_random_steps


@pytest.mark.parametrize(
    ("num_taken", "num_wanted", "is_logged"), [(422, 424, False), (40, 424, True), (0, 0, False)]
)
def test_envs_count_as_slow_when_less_than_half_of_their_random_steps_were_taken(
    num_taken, num_wanted, is_logged, caplog, monkeypatch
):
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level(logging.INFO, "sample_factory"):
        log_random_steps(num_taken, num_wanted, 10.0)
    assert bool(caplog.messages) == is_logged
