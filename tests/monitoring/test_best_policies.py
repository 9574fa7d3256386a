import pytest

from sample_factory.checkpoints.milestones import BEST_SNAPSHOT
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import EpisodeReport, Snapshot, SnapshotRequest, TrainReport
from sample_factory.monitoring.best_policies import RETRY_SECONDS, BestPolicies
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.runtime.queues import LocalQueue

INTERVAL = 5  # --save_best_every_sec


class Run:
    """One policy, its BestPolicies, and a learner that writes the snapshots that are asked for."""

    def __init__(self, folder, fake_time, **flags):
        self._fake_time = fake_time
        self._folder = folder
        all_flags = MonitoringFlags(**{"save_best_every_sec": INTERVAL, **flags})
        self.policy = PolicyProgress(all_flags.stats_avg)
        self.learner = LocalQueue()
        self.best = BestPolicies(all_flags, folder, [self.policy], [self.learner], now=fake_time)

    def train(self, env_frames):
        self.policy.trained(TrainReport(0, 7, env_frames, 0, None))

    def end_episodes(self, *rewards, objective=None, **extra_stats):
        for reward in rewards:
            report = EpisodeReport(0, reward, 300, reward if objective is None else objective, extra_stats)
            self.policy.episodes.add(report)

    def saved(self, seconds=INTERVAL, is_written=True):
        """Returns the names of the best checkpoints after a tick after so many seconds, in which the learner
        has answered; None if no snapshot was asked for. is_written: whether the learner can write it."""
        self._fake_time.seconds += seconds
        self.best.tick()
        requests = self.learner.get_many(0)
        if not requests:
            return None
        assert requests == [SnapshotRequest(BEST_SNAPSHOT)]
        path = self._folder / "checkpoint_p0" / BEST_SNAPSHOT
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"weights")
        place = str(path) if is_written else None
        self.best.handle(Snapshot(BEST_SNAPSHOT, 0, 7, self.policy.env_frames, place))
        return [file.name for file in sorted(path.parent.glob("best_0*"))]


@pytest.fixture
def make_run(fake_time, tmp_path):
    return lambda **flags: Run(tmp_path, fake_time, **flags)


@pytest.fixture
def run(make_run):
    run = make_run(stats_avg=4, save_best_after=100)
    run.train(0)
    run.train(101)
    return run


def test_the_first_full_window_is_the_best_so_far_and_is_replaced_by_a_better_one_only(run):
    run.end_episodes(1.0, 2.0, 3.0)
    assert run.saved() is None
    run.end_episodes(4.0)
    assert run.saved() == ["best_000000007_101_reward_2.500.pth"]
    run.train(200)
    run.end_episodes(1.003)  # the mean grows by less than 0.001
    assert run.saved() is None
    run.end_episodes(*[9.0] * 4)
    assert run.saved() == ["best_000000007_200_reward_9.000.pth"]


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, 1e4])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rewards_of_any_scale_have_a_best_also_in_a_resumed_run(make_run, scale, sign):
    first = make_run(stats_avg=1, save_best_after=0)
    values = [scale * value for value in ((2.0, 3.0) if sign > 0 else (-3.0, -2.0))]
    for value in values:
        first.train(200)
        first.end_episodes(value)
        assert len(first.saved()) == 1
    resumed = make_run(stats_avg=1, save_best_after=0)
    resumed.train(300)
    resumed.end_episodes(sum(values) / 2)
    assert resumed.saved() is None, "it is worse"
    resumed.end_episodes(values[1] + scale)
    assert len(resumed.saved()) == 1


def test_the_first_episodes_of_all_agents_are_no_best_since_short_ones_end_first(make_run):
    run = make_run(stats_avg=4)
    run.policy = run.best._policies[0] = PolicyProgress(4, num_agents=10)
    run.train(10**6)
    run.end_episodes(*[-1.0] * 9)
    assert run.saved() is None
    run.end_episodes(*[-5.0] * 4)
    assert run.saved() == ["best_000000007_1000000_reward_-5.000.pth"]


def test_a_snapshot_that_was_not_written_changes_nothing_and_is_requested_again(run):
    run.end_episodes(*[2.0] * 4)
    assert run.saved(is_written=False) == []
    run.end_episodes(*[1.0] * 4)
    assert run.saved() is None, "the learner may not have answered yet"
    assert run.saved(RETRY_SECONDS) == ["best_000000007_101_reward_1.000.pth"]
    run.end_episodes(*[1.5] * 4)
    assert run.saved() == ["best_000000007_101_reward_1.500.pth"], "no wait after a success"
    run.best.close()
    assert not list(run._folder.rglob(BEST_SNAPSHOT))


def test_an_infinite_mean_is_never_the_best(run):
    run.end_episodes(*[float("inf")] * 4)
    assert run.saved() is None
    run.end_episodes(*[1.0] * 4)
    assert run.saved() is not None


@pytest.mark.parametrize("reports", [[], [100]])
def test_nothing_is_saved_before_the_learner_has_reported_and_before_save_best_after(make_run, reports):
    run = make_run(stats_avg=1, save_best_after=100)
    for env_frames in reports:
        run.train(env_frames)
    run.end_episodes(1.0)
    assert run.saved() is None


@pytest.mark.parametrize(
    "best, value", [("reward_5.000", 6.0), ("len_900.000", 4.0), ("eval_reward_9.000", 4.0), ("good", 4.0)]
)
def test_the_best_value_of_an_earlier_run_by_the_same_metric_has_to_be_exceeded(
    make_run, tmp_path, best, value
):
    (tmp_path / "checkpoint_p0").mkdir()
    (tmp_path / "checkpoint_p0" / f"best_000000001_4_{best}.pth").touch()
    run = make_run(stats_avg=1, save_best_after=0)
    run.train(200)
    if value > 5.0:
        run.end_episodes(4.0)
        assert run.saved() is None
    run.end_episodes(value)
    kept = [f"best_000000007_200_reward_{value:.3f}.pth"]
    assert run.saved() == ([f"best_000000001_4_{best}.pth", *kept] if best == "good" else kept)


@pytest.mark.parametrize(
    "metric, value",
    [("true_objective", 7.0), ("true_reward", 7.0), ("len", 300.0), ("kills", 3.0), ("win/rate %", 0.5)],
)
def test_any_statistic_can_be_the_metric(make_run, metric, value):
    run = make_run(stats_avg=1, save_best_after=0, save_best_metric=metric)
    run.train(1)
    run.end_episodes(1.0, objective=7.0, kills=3.0, **{"win/rate %": 0.5})
    name = metric.replace("/", "_").replace(" %", "__")
    assert run.saved() == [f"best_000000007_1_{name}_{value:.3f}.pth"]


def test_an_unknown_metric_is_reported_once(make_run, logged):
    run = make_run(stats_avg=1, save_best_after=0, save_best_metric="kils")
    run.train(1)
    run.end_episodes(1.0, kills=3.0)
    assert [run.saved() for _ in range(3)] == [None, None, None]
    (warning,) = logged()
    assert "kils" in warning and "reward, true_objective, len, kills" in warning


def test_several_best_checkpoints_a_minute_are_one_line_of_the_log_and_a_failure_is_one_too(
    run, logged, monkeypatch
):
    for reward in (1.0, 2.0, 3.0):
        run.end_episodes(*[reward] * 4)
        assert run.saved() is not None
    assert len(logged()) == 1 and "best_000000007_101_reward_1.000.pth" in logged()[0]
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    run.end_episodes(*[4.0] * 4)
    assert run.saved() == ["best_000000007_101_reward_3.000.pth"]
    assert "COULD NOT KEEP best_000000007_101_reward_4.000.pth: No space left" in logged()[1]
