import pytest

from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import EpisodeReport, SaveRequest, TrainReport
from sample_factory.monitoring.best_policies import RETRY_SECONDS, BestPolicies
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.runtime.queues import LocalQueue

INTERVAL = 5  # --save_best_every_sec


class Run:
    """One policy, its BestPolicies and what is sent to its learner."""

    def __init__(self, fake_time, **flags):
        self._fake_time = fake_time
        all_flags = MonitoringFlags(**{"save_best_every_sec": INTERVAL, **flags})
        self.policy = PolicyProgress(all_flags.stats_avg)
        self.learner = LocalQueue()
        self.best = BestPolicies(all_flags, [self.policy], [self.learner], now=fake_time)

    def train(self, env_frames, best_value=None):
        report = TrainReport(0, 7, env_frames, 0, None, best_value)
        self.policy.trained(report)
        self.best.handle(report)

    def end_episodes(self, *rewards, objective=None, **extra_stats):
        for reward in rewards:
            report = EpisodeReport(0, reward, 300, reward if objective is None else objective, extra_stats)
            self.policy.episodes.add(report)

    def requests(self, seconds=INTERVAL):
        """The requests that are sent in a tick after so many seconds."""
        self._fake_time.seconds += seconds
        self.best.tick()
        return self.learner.get_many(0)


@pytest.fixture
def make_run(fake_time):
    return lambda **flags: Run(fake_time, **flags)


@pytest.fixture
def run(make_run):
    run = make_run(stats_avg=4, save_best_after=100)
    run.train(0)
    run.train(101)
    return run


def test_the_first_full_window_is_the_best_so_far(run):
    run.end_episodes(1.0, 2.0, 3.0)
    assert run.requests() == []
    run.end_episodes(4.0)
    assert run.requests() == [SaveRequest("reward", 2.5)]


def test_only_a_better_value_is_saved(run):
    run.end_episodes(*[1.0] * 4)
    assert run.requests() == [SaveRequest("reward", 1.0)]
    run.train(200, best_value=1.0)
    run.end_episodes(1.003)  # the mean grows by less than 0.001
    assert run.requests() == []
    run.end_episodes(2.0)
    (request,) = run.requests()
    assert request.value == pytest.approx(1.25075)


def test_a_value_counts_once_its_file_is_written_and_is_requested_again_until_then(run):
    run.end_episodes(*[2.0] * 4)
    assert run.requests() == [SaveRequest("reward", 2.0)]
    run.train(200)  # the learner could not write the file
    run.end_episodes(*[1.0] * 4)
    assert run.requests() == [], "the learner may not have answered yet"
    assert run.requests(RETRY_SECONDS) == [SaveRequest("reward", 1.0)]
    run.train(300, best_value=1.0)
    assert run.requests(RETRY_SECONDS) == []
    run.end_episodes(*[1.5] * 4)
    assert run.requests() == [SaveRequest("reward", 1.5)], "no wait after a success"


def test_an_infinite_mean_is_never_the_best(run):
    run.end_episodes(*[float("inf")] * 4)
    assert run.requests() == []
    run.end_episodes(*[1.0] * 4)
    assert run.requests() == [SaveRequest("reward", 1.0)]


def test_nothing_is_saved_before_save_best_after(make_run):
    run = make_run(stats_avg=1, save_best_after=100)
    run.train(100)
    run.end_episodes(1.0)
    assert run.requests() == []


def test_the_best_value_of_an_earlier_run_has_to_be_exceeded(make_run):
    run = make_run(stats_avg=1, save_best_after=0)
    run.train(100, best_value=5.0)
    run.train(200, best_value=5.0)
    run.end_episodes(4.0)
    assert run.requests() == []
    run.end_episodes(6.0)
    assert run.requests() == [SaveRequest("reward", 6.0)]


@pytest.mark.parametrize(
    "metric, value", [("true_objective", 7.0), ("true_reward", 7.0), ("len", 300.0), ("kills", 3.0)]
)
def test_any_statistic_can_be_the_metric(make_run, metric, value):
    run = make_run(stats_avg=1, save_best_after=0, save_best_metric=metric)
    run.train(1)
    run.end_episodes(1.0, objective=7.0, kills=3.0)
    assert run.requests() == [SaveRequest(metric, value)]
    assert run.policy.episodes.mean(metric, 1) == value


def test_an_unknown_metric_is_reported_once(make_run, logged):
    run = make_run(stats_avg=1, save_best_after=0, save_best_metric="kils")
    run.train(1)
    run.end_episodes(1.0, kills=3.0)
    assert [run.requests() for _ in range(3)] == [[], [], []]
    (warning,) = logged()
    assert "kils" in warning and "reward, true_objective, len, kills" in warning
