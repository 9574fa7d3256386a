import pytest

from sample_factory.exchange.messages import INCIDENTS, Incident, StatsReport
from sample_factory.monitoring.component_stats import KEEP_SECONDS, ComponentStats


def test_old_reports_do_not_count(fake_time):
    stats = ComponentStats(fake_time)
    stats.add(StatsReport("learner", 0, {"wait": 1.0}))
    stats.add(StatsReport("rollout_worker", 0, {"wait": 0.2}))
    fake_time.seconds += KEEP_SECONDS + 1
    stats.add(StatsReport("learner", 0, {"wait": 0.5}))
    stats.add(StatsReport("learner", 0, {"wait": 0.1}))
    expected = {"learner": pytest.approx(0.3), "rollout_worker": 0.2}
    assert stats.waits() == expected, "the last report of a component counts, however old it is"


def test_each_policy_has_the_stats_of_its_own_components(fake_time):
    stats = ComponentStats(fake_time)
    stats.add(StatsReport("rollout_worker", 0, {"request": 0.1}))
    stats.add(StatsReport("learner", 0, {"train": 0.8}))
    stats.add(StatsReport("learner", 1, {"train": 0.4}))
    incidents = {f"health/{kind}": int(kind == "env_rebuilds") for kind in INCIDENTS}
    stats.add_incident(Incident("env_rebuilds", ""))
    assert stats.summaries(0) == {
        "stats/rollout_worker_request": 0.1,
        "stats/learner_train": 0.8,
        **incidents,
    }
    assert stats.summaries(1) == {"stats/learner_train": 0.4}


def test_every_cause_of_wrong_numbers_is_logged_once_a_run_and_counted_each_time(fake_time, caplog):
    stats = ComponentStats(fake_time)
    for worker in range(3):
        stats.add_incident(Incident("implausible_numbers", f"worker {worker} clips", 5))
        stats.add_incident(Incident("env_rebuilds", f"worker {worker} rebuilds"))
    assert stats.incidents["implausible_numbers"] == 15
    assert caplog.messages == ["worker 0 clips", *(f"worker {worker} rebuilds" for worker in range(3))]
    caplog.clear()
    rewards = [f"worker 1: env 2 gave agent 0 the reward {number}; dropped" for number in ("nan", "-1e20")]
    others = [f"worker 1: env 2, agent 0: its {what}; dropped" for what in ("observation had NaN", "mask")]
    for text in (*rewards, "", *others):
        stats.add_incident(Incident("broken_numbers", text))
    assert caplog.messages == [rewards[0], *others], "another cause is another line"


def test_waits_are_means_over_all_policies(fake_time):
    stats = ComponentStats(fake_time)
    stats.add(StatsReport("learner", 0, {"wait": 0.2}))
    stats.add(StatsReport("learner", 1, {"wait": 0.4}))
    assert stats.waits() == {"learner": pytest.approx(0.3)}
