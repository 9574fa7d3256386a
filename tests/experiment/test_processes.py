import numpy as np

from sample_factory.exchange.channels import NO_ENV
from sample_factory.experiment.processes import busy_text, starting_text
from sample_factory.experiment.wiring import WorkerId
from sample_factory.monitoring.status_line import MAX_WIDTH


def test_the_line_about_processes_that_are_not_ready_is_short_and_names_one():
    assert starting_text(4, ["a", "b"], 5.2) == "2 of 4 processes ready (5 s); waiting for a"
    assert len(starting_text(160, ["rollout_worker_100"] * 58, 115.0)) <= MAX_WIDTH


def test_only_a_rollout_worker_is_busy_with_an_env():
    stepping = np.array([3, NO_ENV])
    assert busy_text(WorkerId("rollout_worker", 0), stepping) == "rollout_worker_0 (busy with env 3)"
    assert busy_text(WorkerId("rollout_worker", 1), stepping) == "rollout_worker_1"
    assert busy_text(WorkerId("sampler", 0), stepping) == "sampler_0", "it has several rollout workers"
    assert busy_text(WorkerId("policy_worker", 2, 0), stepping) == "policy_worker_0_2", "there may be more"
