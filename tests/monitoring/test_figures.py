import json

import pytest

from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import LearnerReady, StatsReport, TrainReport
from sample_factory.monitoring.figures import FiguresWriter, PolicyCounters, read_figures
from sample_factory.monitoring.monitor import Monitor
from tests.monitoring.conftest import sizes

LEARNER = LearnerReady(0, "cpu", "fp32", 9)


class FollowingWriter(FiguresWriter):
    """Hands everything to its monitor first, as the main loop does."""

    def handle(self, report):
        self._monitor.handle(report)
        super().handle(report)

    def tick(self):
        self._monitor.tick()
        super().tick()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "figures.jsonl"


@pytest.fixture
def writer(file, tmp_path, fake_time):
    monitor = Monitor(tmp_path, MonitoringFlags(), sizes(num_policies=2), now=fake_time)
    writer = FollowingWriter(str(file), 5.0, monitor, fake_time)
    writer.handle(LEARNER)
    for policy_id in range(2):
        writer.handle(TrainReport(policy_id, version=7, env_frames=1000, samples=500, stats=None))
    return writer


def run(writer, fake_time, seconds):
    for _ in range(round(10 * seconds)):
        fake_time.seconds += 0.1
        writer.tick()


def test_a_line_is_written_at_the_start_with_the_first_frames_every_interval_and_at_the_end(
    writer, file, fake_time
):
    writer.tick()
    run(writer, fake_time, 2)
    writer.handle(TrainReport(0, version=8, env_frames=1400, samples=600, stats=None))
    run(writer, fake_time, 9)
    writer.close()
    figures = read_figures(file)
    assert [line.seconds for line in figures] == pytest.approx([0, 2.1, 5, 10, 11], abs=0.15)
    assert [line.env_frames for line in figures] == [0, 400, 400, 400, 400]
    assert [line.time for line in figures] == pytest.approx([1000 + line.seconds for line in figures])


def test_counters_are_those_of_this_run_with_the_time_at_which_they_were_reached(writer, file, fake_time):
    writer.tick()
    fake_time.seconds = 1003.0
    writer.handle(TrainReport(1, version=8, env_frames=1400, samples=600, stats=None))
    fake_time.seconds = 1004.0
    writer.close()
    last = read_figures(file)[-1]
    assert last.policies == (PolicyCounters(0, 0, 1000.0), PolicyCounters(400, 100, 1003.0))
    assert (last.env_frames, last.samples) == (400, 100)


def test_components_and_learners_are_data(writer, file):
    writer.handle(StatsReport("rollout_worker", 0, {"wait": 0.5, "memory_mb": 10.0}))
    writer.handle(StatsReport("rollout_worker", 0, {"wait": 0.7, "memory_mb": 30.0}))
    writer.tick()
    (line,) = read_figures(file)
    assert line.components == {"rollout_worker": {"wait": pytest.approx(0.6), "memory_mb": 20.0}}
    assert line.learners == (LEARNER,)
    assert line.agents == sizes(num_policies=2).num_agents


def test_fps_are_known_for_windows_that_the_run_has_covered(writer, file, fake_time):
    writer.tick()
    for second in range(1, 13):
        writer.handle(TrainReport(0, version=8, env_frames=1000 + 100 * second, samples=600, stats=None))
        run(writer, fake_time, 1)
    figures = read_figures(file)
    assert figures[0].fps == {} and set(figures[-1].fps) == {"10"}
    assert figures[-1].fps["10"] == pytest.approx(100, rel=0.1)


def test_a_new_run_replaces_the_file_and_an_incomplete_last_line_is_ignored(writer, file):
    assert read_figures(file) == []
    file.write_text("of an earlier run\n")
    writer.tick()
    writer.close()
    assert all(json.loads(line)["env_frames"] == 0 for line in file.read_text().splitlines())
    with open(file, "a") as appended:
        appended.write('{"time": 10')
    assert len(read_figures(file)) == 2
