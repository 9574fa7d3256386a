import numpy as np

from sample_factory.exchange.channels import NO_ENV
from sample_factory.experiment.processes import busy_env, starting_text
from sample_factory.monitoring.status_line import MAX_WIDTH


def test_the_line_about_processes_that_are_not_ready_is_short_and_says_what_the_run_waits_for():
    text = starting_text(4, ["learner", "rollout_worker"], 5.2)
    assert text == "2 of 4 processes ready after 5 s; the envs are starting"
    for role in ("rollout_worker", "sampler", "policy_worker"):
        assert len(starting_text(160, [role] * 58, 115.0)) <= MAX_WIDTH
    assert starting_text(4, ["learner"], 15.0).endswith("; the learner is starting")


def test_a_process_is_busy_with_an_env_of_its_rollout_workers():
    stepping = np.array([3, NO_ENV, 5])
    assert busy_env([0], stepping) == "env 3"
    assert busy_env([1], stepping) == "" and busy_env([], stepping) == ""
    assert busy_env([1, 2], stepping) == "env 5 of worker 2"
