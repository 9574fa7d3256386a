import shutil

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import (
    INCIDENTS,
    ComponentReady,
    EpisodeReport,
    Incident,
    StatsReport,
    TrainReport,
)
from sample_factory.monitoring.console import summary_lines
from sample_factory.monitoring.monitor import Monitor
from tests.monitoring.conftest import FRAMESKIP, sizes
from tests.system.running import scalars


@pytest.fixture
def make_monitor(tmp_path, fake_time):
    def make(num_policies=1, envs_per_split=8, texts=None, num_agents=None, **flags) -> Monitor:
        topology = sizes(num_policies, envs_per_split)
        topology.num_agents = num_agents or topology.num_agents
        return Monitor(tmp_path, MonitoringFlags(**flags), topology, texts=texts, now=fake_time)

    return make


def train_report(env_frames: int, policy: int = 0, samples: int = 0, **kwargs) -> TrainReport:
    return TrainReport(policy, 7, env_frames, samples, kwargs.pop("stats", None), **kwargs)


def episode(reward: float, policy: int = 0, **extra_stats: float) -> EpisodeReport:
    objective = extra_stats.pop("objective", reward)
    return EpisodeReport(policy, reward, 300, objective, extra_stats)


def train_steadily(monitor: Monitor, fake_time, seconds: int, first: int, frames_per_second: int):
    for second in range(seconds + 1):
        monitor.handle(train_report(first + second * frames_per_second, samples=second * 10))
        monitor.tick()
        if second < seconds:
            fake_time.seconds += 1


def test_nothing_is_written_before_the_learner_has_reported_where_it_resumes(make_monitor, tmp_path):
    monitor = make_monitor()
    monitor.write(0, {"own": 1.0})  # at 0 frames, it would replace the curves of earlier runs
    monitor.handle(train_report(5000))
    monitor.write(0, {"own": 2.0})
    monitor.close()
    assert scalars(tmp_path)["own"] == [(5000, 2.0)]


def test_a_run_without_any_report_has_a_status_and_a_summary(make_monitor, fake_time, tmp_path):
    monitor = make_monitor(num_policies=2)
    for _ in range(100):
        monitor.tick()
        fake_time.seconds += 1
    assert monitor.status() == "0   no episode ended yet"
    assert not monitor.progress.is_done
    monitor.close()
    assert len(summary_lines(monitor.summary(), "stopped")) == 3
    never_ticked = make_monitor()
    never_ticked.close()
    assert never_ticked.summary().seconds == 0
    assert not (tmp_path / ".summary").exists()


def test_rates_come_from_new_frames_before_the_stop_and_progress_from_all(make_monitor, fake_time):
    monitor = make_monitor(train_for_env_steps=2_000_000)
    train_steadily(monitor, fake_time, 20, first=999_000, frames_per_second=50)
    assert monitor.status().startswith("1.00M / 2M   50 %   5h33m left      50 FPS")
    monitor.stopping()
    fake_time.seconds += 30
    summary = monitor.summary()
    assert (summary.new_frames, summary.total_frames, summary.mean_fps()) == (1000, 1_000_000, 50)


def test_the_time_left_is_that_of_the_slowest_policy_and_surplus_frames_are_no_progress(
    make_monitor, fake_time
):
    monitor = make_monitor(num_policies=2, train_for_env_steps=10_000)
    for second in range(1, 61):
        monitor.handle(train_report(300 * second, policy=0))
        monitor.handle(train_report(100 * second, policy=1))
        monitor.tick()
        fake_time.seconds += 1
    assert monitor.progress.seconds_left() == pytest.approx(40.0)
    assert monitor.progress.share_done == (10_000 + 6_000) / 20_000
    assert "16k / 20k   80 %   0:40 left " in monitor.status()


def test_a_run_is_done_when_all_policies_have_their_frames(make_monitor):
    monitor = make_monitor(num_policies=2, train_for_env_steps=100)
    monitor.handle(train_report(100, policy=0))
    assert not monitor.progress.is_done
    monitor.handle(train_report(99, policy=1))
    assert not monitor.progress.is_done
    monitor.handle(train_report(100, policy=1))
    assert monitor.progress.is_done


def test_the_time_of_a_run_starts_with_the_first_tick(make_monitor, fake_time):
    monitor = make_monitor(train_for_seconds=10)
    fake_time.seconds += 50  # starting up
    assert not monitor.progress.is_done
    monitor.tick()
    fake_time.seconds += 9
    assert not monitor.progress.is_done
    fake_time.seconds += 1
    assert monitor.progress.is_done


def test_the_first_trained_frames_are_logged_at_once_and_a_status_every_five_seconds(
    make_monitor, fake_time, logged
):
    monitor = make_monitor()
    monitor.handle(train_report(0))
    monitor.tick()
    fake_time.seconds += 2
    monitor.handle(train_report(100))
    monitor.tick()
    assert len(logged()) == 1 and " 50 FPS" in logged()[0]
    fake_time.seconds += 4.9
    monitor.tick()
    assert len(logged()) == 1
    fake_time.seconds += 0.2
    monitor.tick()
    assert len(logged()) == 2


def test_intervals_are_counted_from_the_first_tick(make_monitor, fake_time, logged, tmp_path):
    monitor = make_monitor(experiment_summaries_interval=5)
    monitor.handle(train_report(100))
    fake_time.seconds += 60  # starting up
    monitor.tick()
    assert logged() == []
    fake_time.seconds += 5
    monitor.handle(train_report(200))
    monitor.tick()
    assert len(logged()) == 1
    monitor.close()
    assert [x for x, _ in scalars(tmp_path)["0_aux/_fps"]] == [200, 200]


def test_the_status_has_means_and_lag_and_the_bottleneck_is_logged_when_it_is_known(
    make_monitor, fake_time, logged
):
    monitor = make_monitor(stats_avg=2)
    monitor.handle(train_report(0))
    for reward in (100.0, 1.0, 2.0):  # the first falls out of the window
        monitor.handle(episode(reward))
    monitor.handle(train_report(10, stats={"version_diff_avg": 2.5}))
    for component, wait in (("rollout_worker", 0.6), ("policy_worker", 0.5), ("learner", 0.02)):
        monitor.handle(StatsReport(component, 0, {"wait": wait}))
    for _ in range(25):
        monitor.tick()
        fake_time.seconds += 1
    statuses = [line for line in logged() if line.endswith("reward 1.50   lag 2.5")]
    assert len(statuses) == 5 and [line for line in logged() if line not in statuses] == [
        "bottleneck: learner, busy 98 %"
    ]


def test_train_stats_are_written_at_once_at_the_policys_frames(make_monitor, tmp_path):
    monitor = make_monitor(num_policies=2)
    monitor.handle(train_report(0, policy=1))
    monitor.handle(train_report(400, policy=1, stats={"loss": 0.5}))
    monitor.handle(train_report(800, policy=1, stats={"loss": 0.25}))
    monitor.close()
    assert scalars(tmp_path, policy=1)["train/loss"] == [(400, 0.5), (800, 0.25)]
    assert not (tmp_path / ".summary" / "0").exists()


def test_without_summaries_use_frameskip_the_axis_is_env_steps(make_monitor, tmp_path):
    monitor = make_monitor(summaries_use_frameskip=False)
    monitor.handle(train_report(400, stats={"loss": 0.5}))
    monitor.close()
    assert scalars(tmp_path)["train/loss"] == [(400 // FRAMESKIP, 0.5)]


def test_summaries_have_the_keys_of_v1_and_others_those_of_v2(make_monitor, fake_time, tmp_path):
    monitor = make_monitor()
    for number in range(10):
        monitor.handle(episode(float(number), objective=2.0, kills=3.0, **{"_dmlab/score": 4.0}))
    monitor.handle(StatsReport("rollout_worker", 0, {"wait": 0.2, "env_step": 0.7, "memory_mb": 60.0}))
    monitor.handle(StatsReport("rollout_worker", 0, {"wait": 0.4, "env_step": 0.5, "memory_mb": 60.0}))
    monitor.handle(StatsReport("policy_worker", 0, {"wait": 0.1, "forward": 0.8, "memory_mb": 300.0}))
    monitor.handle(StatsReport("learner", 0, {"wait": 0.1, "train": 0.9, "memory_mb": 500.0}))
    monitor.handle(Incident("worker_restarts", "rollout_worker_1 died"))
    train_steadily(monitor, fake_time, 20, first=0, frames_per_second=50)
    monitor.close()
    found = {tag: points[-1] for tag, points in scalars(tmp_path).items()}
    assert found.pop("stats/master_process_memory_mb")[1] > 1
    expected = {
        "0_aux/_fps": 50,
        "0_aux/_sample_throughput": 10,
        "0_aux/env_frames": 1000,
        **{f"health/{kind}": float(kind == "worker_restarts") for kind in INCIDENTS},
        "0_aux/avg_reward": 4.5,
        "0_aux/avg_reward_min": 0,
        "0_aux/avg_reward_max": 9,
        "0_aux/avg_true_reward": 2,
        "0_aux/avg_true_reward_min": 2,
        "0_aux/avg_true_reward_max": 2,
        "0_aux/avg_len": 300,
        "len/len_min": 300,
        "len/len_max": 300,
        "0_aux/avg_kills": 3,
        "_dmlab/score": 4,
        "stats/wait_actor": 0.3,
        "stats/step_actor": 0.6,
        "stats/memory_actor": 60,
        "stats/wait_policy": 0.1,
        "stats/step_policy": 0.8,
        "stats/memory_policy_worker": 300,
        "stats/learner_wait": 0.1,
        "stats/learner_train": 0.9,
        "stats/memory_learner": 500,
    }
    assert set(found) == set(expected)
    assert {tag: value for tag, (_, value) in found.items()} == pytest.approx(expected)
    assert {x for x, _ in found.values()} == {1000}


def test_a_resumed_run_hides_summaries_beyond_its_checkpoint(make_monitor, tmp_path):
    killed, resumed = make_monitor(), make_monitor()
    killed.handle(train_report(100, stats={"loss": 1.0}))
    killed.handle(train_report(200, stats={"loss": 2.0}))
    killed.handle(train_report(300, stats={"loss": 3.0}))
    killed.close()
    resumed.handle(train_report(200))
    resumed.handle(train_report(250, stats={"loss": 9.0}))
    resumed.close()
    assert scalars(tmp_path)["train/loss"] == [(100, 1.0), (200, 2.0), (250, 9.0)]


@pytest.mark.parametrize("agents", [1, 30])
def test_curves_of_a_resumed_policy_go_on_without_its_first_short_episodes(make_monitor, tmp_path, agents):
    """However soon the run ends: the last point of a curve is what tables take as the result of a run."""
    whole = max(10, agents)  # an episode of each agent, and enough for a mean
    last = {}
    for num_episodes in (whole - 1, whole):
        begun, resumed = make_monitor(stats_avg=20), make_monitor(stats_avg=20, num_agents=agents)
        begun.handle(train_report(0))
        for _ in range(10):  # the first run has nothing better to show
            begun.handle(episode(50.0))
        begun.handle(train_report(100))
        begun.close()
        resumed.handle(train_report(100))
        for _ in range(num_episodes):
            resumed.handle(episode(1.0, kills=2.0))
        resumed.handle(train_report(200))
        resumed.close()
        last[num_episodes] = scalars(tmp_path)["0_aux/avg_reward"][-1]
        shutil.rmtree(tmp_path / ".summary")
    assert last == {whole - 1: (100, 50.0), whole: (200, 1.0)}


def test_samples_without_a_rate_are_shown_until_the_first_batch_is_ready(make_monitor, fake_time):
    monitor = make_monitor()
    for _ in range(5):
        monitor.tick()
        monitor.handle(StatsReport("rollout_worker", 0, {}, samples=100))
        fake_time.seconds += 1
    assert monitor.status() == "collecting the first batch: 500 of 4,096 samples"
    monitor.handle(ComponentReady("learner", "policy 0: the first batch is ready"))
    assert monitor.status() == "learning from the first batch"
    monitor.handle(train_report(0))
    monitor.handle(train_report(100))
    assert "first batch" not in monitor.status()


def test_the_rate_of_a_slow_run_is_steady_between_its_batches(make_monitor, fake_time, logged):
    monitor = make_monitor(train_for_env_steps=10_000)
    monitor.handle(train_report(0))
    for second in range(95):
        if second % 20 == 19:
            monitor.handle(train_report(50 * (second + 1)))
        monitor.tick()
        fake_time.seconds += 1
    texts = [line for line in logged() if "FPS" in line and " / " in line]
    assert len(texts) > 10 and all("   5" in text and " FPS" in text for text in texts)
    rates = {int(text.split(" FPS")[0].split()[-1]) for text in texts}
    assert rates <= set(range(49, 55))


def test_a_long_first_episode_is_noted_each_time_that_its_length_has_doubled(make_monitor, fake_time, logged):
    monitor = make_monitor()
    monitor.tick()
    for length in (100, 150, 210, 500):
        monitor.handle(StatsReport("rollout_worker", 0, {}, longest_episode=length))
        fake_time.seconds += 5
        monitor.tick()
    monitor.handle(episode(1.0))
    monitor.handle(StatsReport("rollout_worker", 0, {}, longest_episode=5000))
    fake_time.seconds += 5
    monitor.tick()
    notes = [line for line in logged() if line.startswith("no episode")]
    assert [int(note.split()[-1]) for note in notes] == [100, 210, 500]


def test_curves_are_written_and_flushed_every_five_seconds_at_first(make_monitor, fake_time, tmp_path):
    monitor = make_monitor(experiment_summaries_interval=60, flush_summaries_interval=1000)
    train_steadily(monitor, fake_time, 21, first=0, frames_per_second=1)
    assert [x for x, _ in scalars(tmp_path)["0_aux/_fps"]] == [5, 10, 15, 20]
    train_steadily(monitor, fake_time, 300, first=21, frames_per_second=1)
    monitor.close()
    late = [x for x, _ in scalars(tmp_path)["0_aux/_fps"] if x > 130]
    assert late == [180, 240, 300, 321]


def test_the_true_objective_has_curves_only_where_it_differs(make_monitor, tmp_path):
    monitor = make_monitor()
    monitor.handle(train_report(0))
    for _ in range(10):
        monitor.handle(episode(1.0))
    monitor.close()
    assert "0_aux/avg_reward" in scalars(tmp_path) and "0_aux/avg_true_reward" not in scalars(tmp_path)


def test_tensorboard_shows_the_command_line_and_the_flags_as_texts(make_monitor, tmp_path):
    monitor = make_monitor(texts={"run/command_line": "    python -m sample_factory.train"})
    monitor.handle(train_report(10))
    monitor.close()
    found = EventAccumulator(str(tmp_path / ".summary" / "0")).Reload()
    (event,) = found.Tensors("run/command_line")
    assert event.tensor_proto.string_val[0] == b"    python -m sample_factory.train"
    (event,) = found.Tensors("run/legend")
    assert b"| `train/valids_fraction` | share of the policy" in event.tensor_proto.string_val[0]


def test_the_best_mean_of_a_full_window_is_remembered(make_monitor, fake_time):
    monitor = make_monitor(stats_avg=2)
    for number, reward in enumerate((9.0, 1.0, 5.0, 2.0, 2.0)):
        monitor.handle(train_report(number * 1000))
        monitor.handle(episode(reward))
        monitor.tick()
        fake_time.seconds += 6
    policy = monitor.policies[0]
    assert (policy.best_reward, policy.best_at) == (5.0, 1000), "9 and 1; 9 alone was no full window"


def test_the_levels_of_several_policies_are_logged_with_their_policy(make_monitor, fake_time, logged):
    monitor = make_monitor(num_policies=2)
    for policy_id in range(2):
        monitor.handle(train_report(100, policy_id))
        monitor.handle(EpisodeReport(policy_id, 3.0, 9, 3.0, {}, level="easy"))
    for _ in range(70):
        monitor.tick()
        fake_time.seconds += 1
    lines = [line for line in logged() if "level" in line]
    assert lines == [f"policy {policy_id}: 1 level, mean reward 3.00: easy 3.00" for policy_id in range(2)]
