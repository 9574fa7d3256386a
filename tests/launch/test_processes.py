import re

import numpy as np
import pytest

from sample_factory.exchange.channels import NO_ENV, in_close
from sample_factory.launch import processes
from sample_factory.launch.processes import STARTING, describe_stuck, env_call, not_saved, starting_text
from sample_factory.monitoring.console import MAX_WIDTH
from sample_factory.runtime.child import Child, kill_all
from sample_factory.runtime.local_ray import Cluster
from sample_factory.runtime.supervisor import stop_all
from tests.runtime.bodies import FailsWhenStopped, GetsStuck, Idle, Stubborn
from tests.waiting import eventually, kill_9, wait_ready


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


def test_workers_that_are_stuck_in_an_env_are_named_with_the_call(monkeypatch):
    monkeypatch.setattr(processes, "SILENT_SECONDS", 0.6)
    calls = {"sampler_0": "step of env 1", "sampler_1": ""}
    children = [Child(name, GetsStuck) for name in calls]
    for child in children:
        child.start()
    try:
        assert describe_stuck(children, lambda child: calls[child.name]) == ""
        assert eventually(lambda: all(child.silent_seconds > 0.6 for child in children))
        text = describe_stuck(children, lambda child: calls[child.name])
        assert re.fullmatch(r"sampler_0 has been in step of env 1 for \d+ s", text)
    finally:
        kill_all(children)


@pytest.mark.parametrize(
    ("factory", "killed", "reasons"),
    [
        (Idle, "", []),
        (FailsWhenStopped, "", ["OSError: the disk is full (bodies.py:"]),
        (Stubborn, "before", ["has ended without saving a checkpoint"]),
        (Stubborn, "while", ["has ended without saving a checkpoint"]),
    ],
)
def test_a_learner_that_ends_without_having_saved_is_a_failure_of_a_finished_run(factory, killed, reasons):
    learner = Child("learner_0", factory)
    learner.start()
    wait_ready(learner, 15)
    if killed == "before":
        kill_9(learner.pid)
        learner.join(15)
    learner.stop()
    if killed == "while":
        kill_9(learner.pid)
    too_slow, failed = stop_all([learner], grace_seconds=15)
    failures = not_saved([learner], failed, too_slow)
    assert [failure.where for failure in failures] == ["learner_0"] * len(reasons)
    assert all(map(str.startswith, (failure.message for failure in failures), reasons))
