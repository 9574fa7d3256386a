"""The main process handles reports and sends messages to rollout workers, with real queues."""

import logging
import shutil

import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.exchange.messages import (
    EpisodeReport,
    MatchReport,
    MilestoneSaved,
    NewShaping,
    Opponents,
    PolicyReplaced,
    SnapshotRequest,
    TrainReport,
)
from sample_factory.launch.resources import make_league, make_population
from sample_factory.mainloop.main_loop import MainLoop, Resources
from sample_factory.runtime.failures import CommandFailed
from tests.counting import CountingEnv, dead_worker, make_config, make_plan, make_shared
from tests.system.running import scalars
from tests.waiting import eventually

MILESTONE = Milestone(0, version=1, env_frames=100)


@pytest.fixture
def make_loop(tmp_path):
    def make(metrics=None, **flags):
        config = make_config(
            train_dir=str(tmp_path), **{"num_workers": 2, "selfplay_past_share": 0.5, **flags}
        )
        buffers, channels = make_shared(config, CountingEnv(0, 2))
        config.experiment_dir.mkdir(exist_ok=True)
        family = EnvFamily("counting", CountingEnv, None, {}, metrics)
        plan = make_plan(config, CountingEnv(0, 2), family)
        population, league = make_population(plan), make_league(plan)
        resources = Resources(buffers, channels, population=population, league=league)
        return MainLoop(plan, resources), channels, config.experiment_dir

    return make


def received(queue, message_type):
    return [message for message in queue.get_many(0.0, 1000) if isinstance(message, message_type)]


def start(channels, num_policies=1):
    """Puts a first report of each learner: nothing is written before it."""
    for policy_id in range(num_policies):
        channels.reports.put(TrainReport(policy_id, 1, 100, 100, None))


def opponents(channels, worker):
    return [message.past_selves for message in received(channels.inboxes[worker], Opponents)]


def summaries(folder, policy_id):
    return {tag: points[-1][1] for tag, points in scalars(folder, policy_id).items()}


def test_all_rollout_workers_get_a_new_milestone_and_a_replaced_one_gets_all(make_loop):
    loop, channels, _folder = make_loop()
    assert opponents(channels, 0) == opponents(channels, 1) == [()]
    channels.reports.put(MilestoneSaved(MILESTONE))
    loop.turn(0.1)
    assert opponents(channels, 0) == opponents(channels, 1) == [(MILESTONE,)]
    loop.turn(0.0)
    loop.process_replaced(*dead_worker(1))
    assert opponents(channels, 0) == [] and opponents(channels, 1) == [(MILESTONE,)]
    loop.close()


def test_many_changes_of_the_league_in_a_row_are_one_message_while_other_workers_start_too(make_loop):
    loop, channels, _folder = make_loop()
    opponents(channels, 0)
    for frames in range(1, 100):
        channels.reports.put(MilestoneSaved(Milestone(0, version=frames, env_frames=frames)))
        loop.receive(0.1)
    assert len(opponents(channels, 0)) == 1
    loop.close()


def test_in_a_resumed_run_all_rollout_workers_get_the_past_selves_of_the_earlier_run(make_loop):
    loop, channels, folder = make_loop()
    path = MILESTONE.path(folder)
    path.parent.mkdir(parents=True)
    path.touch()
    loop.close()
    assert (folder / "league.json").exists()
    loop, channels, _ = make_loop()
    assert opponents(channels, 0) == opponents(channels, 1) == [(MILESTONE,)]
    loop.close()


def test_a_run_has_begun_as_soon_as_it_has_learned_something_new(make_loop):
    loop, channels, _folder = make_loop(train_for_env_steps=300)
    channels.reports.put(TrainReport(0, 5, 100, 100, None))  # of the run that is resumed
    loop.receive(0.1)
    assert not loop.has_begun
    channels.reports.put(TrainReport(0, 6, 200, 200, None))
    loop.receive(0.1)
    assert loop.has_begun and not loop.is_done
    channels.reports.put(TrainReport(0, 7, 300, 300, None))
    loop.receive(0.1)
    assert loop.is_done
    loop.close()


def test_a_run_whose_time_is_over_and_that_has_learned_nothing_says_why(make_loop):
    loop, channels, _folder = make_loop(train_for_seconds=1)
    channels.reports.put(TrainReport(0, 5, 100, 100, None))  # of the run that is resumed
    loop.receive(0.1)
    loop.check_result("")  # the time is not over
    loop.started()
    loop.turn(0.0)  # its clock starts
    assert eventually(lambda: loop.is_done)
    with pytest.raises(CommandFailed, match=r"nothing was learned within --train_for_seconds=1: 0 of about "):
        loop.check_result("")
    with pytest.raises(
        CommandFailed, match="train_for_seconds=1: worker_1 has been in step of env 0 for 9 s"
    ):
        loop.check_result("worker_1 has been in step of env 0 for 9 s")
    channels.reports.put(TrainReport(0, 6, 200, 200, None))
    loop.receive(0.1)
    loop.check_result("worker_1 has been in step of env 0 for 9 s")
    loop.close()


def test_a_policy_that_takes_over_another_takes_over_its_rating(make_loop):
    loop, channels, folder = make_loop(num_policies=2, with_pbt=True)
    start(channels, 2)
    matches = [MatchReport(0, MILESTONE, 1.0)] * 9
    for report in (MilestoneSaved(MILESTONE), *matches, PolicyReplaced(1, donor=0)):
        channels.reports.put(report)
    loop.receive(0.1)
    loop.close()
    own, donor = summaries(folder, 1), summaries(folder, 0)
    assert own["zz_selfplay/elo"] == donor["zz_selfplay/elo"] > 1000
    assert own["zz_selfplay/win_rate"] == donor["zz_selfplay/win_rate"] > 0.5


def test_a_policy_that_takes_over_another_starts_a_new_window_of_episodes(make_loop):
    loop, channels, folder = make_loop(num_policies=2, with_pbt=True)
    for policy_id in (0, 1):
        channels.reports.put(TrainReport(policy_id, 1, 0, 0, None))
        for _ in range(20):
            channels.reports.put(EpisodeReport(policy_id, 5.0, 10, 5.0, {}))
    channels.reports.put(PolicyReplaced(1, donor=0))
    loop.receive(0.1)
    loop.close()
    assert summaries(folder, 0)["0_aux/avg_reward"] == 5.0
    assert "0_aux/avg_reward" not in summaries(folder, 1)


def test_flags_that_are_deleted_with_their_folder_are_written_again_and_not_before_the_run_has_started(
    make_loop, monkeypatch, caplog
):
    monkeypatch.setattr("sample_factory.mainloop.main_loop.LOOK_SECONDS", 1e-9)
    monkeypatch.setattr(logging.getLogger("sample_factory"), "propagate", True)
    loop, _, folder = make_loop(selfplay_past_share=0.0)
    loop.turn(0.0)
    assert not (folder / "cfg.json").exists(), "a run that does not start leaves no flags"
    loop.started()
    flags = (folder / "cfg.json").read_text()
    loop.turn(0.0)
    assert "missing" not in caplog.text
    shutil.rmtree(folder)
    loop.turn(0.0)
    assert (folder / "cfg.json").read_text() == flags and caplog.text.count("cfg.json is missing") == 1
    shutil.rmtree(folder)
    loop.close()
    assert (folder / "cfg.json").read_text() == flags


def test_a_replaced_worker_gets_the_evolved_shaping(make_loop):
    loop, channels, _ = make_loop(num_policies=2, with_pbt=True)
    assert len(received(channels.inboxes[1], NewShaping)) == 2
    loop.process_replaced(*dead_worker(1))
    assert [message.policy_id for message in received(channels.inboxes[1], NewShaping)] == [0, 1]
    assert not received(channels.inboxes[0], Opponents)[2:], "the other workers get nothing again"
    loop.close()


class PairsOfKills:
    """Metrics of a family: the sum of the kills of two episodes."""

    def __init__(self, env_name):
        assert env_name == "counting"
        self.clear()

    def add(self, extra_stats):
        self.kills.append(extra_stats["kills"])
        if len(self.kills) < 2:
            return {}
        total = sum(self.kills)
        self.clear()
        return {"kills_of_two": total, "_own/kills_of_two": total}

    def clear(self):
        self.kills = []


def test_metrics_of_the_family_are_written_for_each_policy_and_begin_again_with_other_weights(make_loop):
    loop, channels, folder = make_loop(metrics=PairsOfKills, num_policies=2)
    start(channels, 2)
    for policy_id, kills in ((0, 1.0), (1, 10.0), (1, 20.0), (0, 2.0)):
        if (policy_id, kills) == (0, 2.0):
            channels.reports.put(PolicyReplaced(0, donor=1))
        channels.reports.put(EpisodeReport(policy_id, 0.0, 100, 0.0, {"kills": kills}))
    loop.receive(0.1)
    loop.close()
    written = summaries(folder, 1)
    assert written["0_aux/avg_kills_of_two"] == written["_own/kills_of_two"] == 30
    assert not (folder / ".summary/0").exists() or "_own/kills_of_two" not in summaries(folder, 0)


def test_metrics_of_the_family_that_raise_are_switched_off_and_the_run_continues(make_loop, caplog):
    loop, channels, folder = make_loop(metrics=PairsOfKills, num_policies=2)
    start(channels, 2)
    reported = ({"kills": 1.0}, {"kills": 2.0}, {}, {"kills": 3.0}, {"kills": 4.0})
    for stats in reported:
        channels.reports.put(EpisodeReport(0, 0.0, 100, 0.0, stats))
    loop.receive(0.1)
    policies = loop._observed_run.policies
    assert policies[0].episodes.mean("kills_of_two", 1) is None, "nothing is decided by values of the past"
    loop.close()
    (line,) = [text for text in caplog.messages if "switched off" in text]
    assert line.startswith(
        "the metrics of env 'counting' are switched off, and training continues: add raised"
    )
    assert "KeyError: 'kills' (test_main_loop.py:" in line and "\n" not in line
    assert summaries(folder, 0)["_own/kills_of_two"] == 3


class Odd(PairsOfKills):
    def add(self, extra_stats):
        return {"own": "high", "kills": 2, "unknown": float("nan"), "\ud800": 1.0}


def test_of_the_metrics_of_the_family_only_numbers_are_used(make_loop, caplog):
    loop, channels, folder = make_loop(metrics=Odd)
    start(channels)
    for _ in range(3):
        channels.reports.put(EpisodeReport(0, 0.0, 100, 0.0, {}))
    loop.receive(0.1)
    assert loop._observed_run.policies[0].episodes.mean("kills", 1) == 2
    loop.close()
    assert summaries(folder, 0)["0_aux/avg_kills"] == 2
    lines = [text for text in caplog.messages if "is left out" in text]
    assert len(lines) == 2 and "the metrics of env 'counting': add returned 'own': 'high'" in lines[0]


def test_metrics_of_the_family_that_cannot_be_made_prevent_the_start_in_one_line(make_loop):
    class Broken(PairsOfKills):
        def __init__(self, env_name):
            raise FileNotFoundError("levels.json")

    with pytest.raises(ConfigError, match="the metrics of env 'counting' cannot be made: FileNotFoundError"):
        make_loop(metrics=Broken)


def test_every_part_is_closed_even_if_one_of_them_raises(make_loop):
    loop, channels, folder = make_loop()
    channels.reports.put(TrainReport(0, 1, 100, 100, None))
    loop.turn(0.1)

    def fail():
        raise LookupError("no such curve")

    loop._subscribers[-1].close = fail
    with pytest.raises(LookupError, match="no such curve"):
        loop.close()
    assert summaries(folder, 0)["0_aux/env_frames"] == 100, "the monitor has written its last summaries"


def test_the_learner_is_asked_for_a_checkpoint_of_the_best_policy(make_loop):
    loop, channels, _ = make_loop(
        selfplay_past_share=0.0, stats_avg=1, save_best_after=0, save_best_every_sec=1
    )
    channels.reports.put(TrainReport(0, 1, 100, 100, None))
    for _ in range(20):  # one of each agent, at least
        channels.reports.put(EpisodeReport(0, 5.0, 10, 5.0, {}))
    requests: list[SnapshotRequest] = []
    for _ in range(40):
        loop.turn(0.1)
        requests += received(channels.learners[0], SnapshotRequest)
        if requests:
            break
    assert requests == [SnapshotRequest("best_evaluated.pth")]
    loop.close()
