import numpy as np

from sample_factory.exchange.channels import NO_ENV, in_close
from sample_factory.launch.processes import STARTING, env_call, starting_text
from sample_factory.monitoring.console import MAX_WIDTH
from sample_factory.runtime.local_ray import Cluster


def test_the_line_about_processes_that_are_not_ready_is_short_and_says_what_the_run_waits_for():
    text = starting_text(4, ["learner", "rollout_worker"], 5.2)
    assert text == "2 of 4 processes ready after 5 s; the envs are starting"
    for role in STARTING:
        assert len(starting_text(160, [role] * 58, 115.0)) <= MAX_WIDTH
    cluster = Cluster("10.0.0.1:6379", "RAY_ADDRESS=10.0.0.1:6379")
    assert starting_text(4, ["ingest"], 15.0, cluster).endswith("10.0.0.1:6379")


def test_a_process_is_busy_with_a_call_on_an_env_of_its_rollout_workers():
    stepping = np.array([3, NO_ENV, 0])
    assert env_call([0], stepping) == "step of env 3"
    assert env_call([1], stepping) == "" and env_call([], stepping) == ""
    assert env_call([1, 2], stepping) == "step of env 0 of worker 2"
    stepping[:] = in_close(0), in_close(1), NO_ENV
    assert env_call([0], stepping) == "close of env 0" and env_call([1], stepping) == "close of env 1"
