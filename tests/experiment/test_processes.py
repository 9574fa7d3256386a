import numpy as np

from sample_factory.exchange.channels import NO_ENV
from sample_factory.experiment.processes import busy_text, starting_text
from sample_factory.experiment.wiring import WorkerId
from sample_factory.monitoring.status_line import MAX_WIDTH


def test_the_line_about_processes_that_are_not_ready_is_short_and_says_what_the_run_waits_for():
    text = starting_text(4, ["learner", "rollout_worker"], 5.2)
    assert text == "2 of 4 processes ready after 5 s; the envs are starting"
    for role in ("rollout_worker", "sampler", "policy_worker"):
        assert len(starting_text(160, [role] * 58, 115.0)) <= MAX_WIDTH
    assert starting_text(4, ["learner"], 15.0).endswith("; the learner is starting")


def test_only_a_rollout_worker_is_busy_with_an_env():
    stepping = np.array([3, NO_ENV])
    assert busy_text(WorkerId("rollout_worker", 0), stepping) == "rollout_worker_0 (busy with env 3)"
    assert busy_text(WorkerId("rollout_worker", 1), stepping) == "rollout_worker_1"
    assert busy_text(WorkerId("sampler", 0), stepping) == "sampler_0", "it has several rollout workers"
    assert busy_text(WorkerId("policy_worker", 2, 0), stepping) == "policy_worker_0_2", "there may be more"
