"""Evaluation during training: when a policy is evaluated, and what becomes of the results."""

import logging
import time
import types

import gymnasium as gym
import pytest

from sample_factory.checkpoints.milestones import SNAPSHOT
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation import during_training
from sample_factory.evaluation.during_training import Evaluations
from sample_factory.evaluation.measurement import plan_evaluation
from sample_factory.exchange.messages import Incident, Snapshot, SnapshotRequest, TrainReport
from sample_factory.monitoring.component_stats import ComponentStats
from tests.counting import make_plan
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("quick_evaluator")
EVERY = 100
CHILDREN = "tests.evaluation.quick_measurements"


class Policy:
    eval_reward = None


class FakeMonitor:
    """Keeps what is written."""

    def __init__(self, num_policies):
        self.policies = [Policy() for _ in range(num_policies)]
        self.written = []

    def write(self, policy_id, scalars, env_frames):
        self.written.append((policy_id, env_frames, scalars))


class FakeInbox:
    """Of a learner: adds its policy to `requests` for each request."""

    def __init__(self, policy_id, requests):
        self.policy_id = policy_id
        self.requests = requests

    def put(self, message, keep_waiting):
        assert message == SnapshotRequest(SNAPSHOT)
        self.requests.append(self.policy_id)
        return True


class Run:
    """The evaluations of a run, and the parts that they use."""

    def __init__(self, tmp_path, num_policies=1, **flags):
        argv = ["--env=gym_CartPole-v1", f"--train_dir={tmp_path}", "--experiment=run"]
        flags = {"eval_every_env_steps": EVERY, "save_best_after": 0, **flags}
        config = parse_config(
            [*argv, *(f"--{name}={value}" for name, value in flags.items())], resolve_family
        )
        self.folder = config.experiment_dir / "checkpoint_p0"
        for policy_id in range(num_policies):
            (config.experiment_dir / f"checkpoint_p{policy_id}").mkdir(parents=True, exist_ok=True)
        self.monitor = FakeMonitor(num_policies)
        self.requests = []
        channels = types.SimpleNamespace(learners=[FakeInbox(i, self.requests) for i in range(num_policies)])
        self.published = []
        self.incidents = ComponentStats(time.monotonic)
        plan = types.SimpleNamespace(config=config, evaluation=None)
        self.evaluations = Evaluations(plan, self.monitor, channels, self.publish)

    def publish(self, incident):
        self.published.append(incident)
        self.incidents.add_incident(incident)  # as in the monitor

    def train(self, *env_frames, policy=0):
        for frames in env_frames:
            self.evaluations.handle(TrainReport(policy, frames // 10, frames, frames, None))

    def answer(self, rewards, env_frames, policy=0):
        """The learner writes a snapshot, whose evaluation will have these rewards."""
        path = self.folder.parent / f"checkpoint_p{policy}" / "evaluated.pth"
        path.write_text(rewards)
        self.evaluations.handle(Snapshot(SNAPSHOT, policy, env_frames // 10, env_frames, str(path)))

    def evaluate(self, rewards, env_frames):
        """Trains up to these frames, and finishes the evaluation."""
        self.train(env_frames - EVERY, env_frames)
        self.answer(rewards, env_frames)
        self.finish()

    def finish(self):
        def is_idle():
            self.evaluations.tick()
            return not self.evaluations.is_busy

        assert eventually(is_idle, seconds=120)

    def best(self):
        return sorted(path.name for path in self.folder.glob("best_*"))


@pytest.fixture
def quick_evaluator(monkeypatch):
    monkeypatch.setattr(during_training, "CHILD", f"{CHILDREN}:Rewards")


def test_a_policy_is_due_whenever_its_frames_pass_a_multiple_also_in_a_resumed_run(tmp_path):
    run = Run(tmp_path)
    run.train(250, 290)
    assert run.requests == [], "a resumed run was evaluated at 200"
    run.train(310)
    assert run.requests == [0]


def test_the_results_are_written_at_the_frames_of_the_weights(tmp_path):
    run = Run(tmp_path)
    run.train(90, 110)
    run.answer("1 2 3 1 2 3 1 2 3 2", 110)
    run.train(150)
    run.finish()
    ((policy, env_frames, scalars),) = run.monitor.written
    assert (policy, env_frames) == (0, 110)
    assert scalars["eval/reward"] == 2.0 and scalars["eval/kills"] == 3.0
    assert scalars["eval/reward_low"] < 2.0 < scalars["eval/reward_high"]
    assert run.monitor.policies[0].eval_reward == 2.0


def test_an_evaluation_is_skipped_while_the_last_one_of_the_policy_has_not_ended(tmp_path, caplog):
    caplog.set_level(logging.INFO, "sample_factory")
    run = Run(tmp_path, num_policies=2)
    run.train(90, 110, 210, 310)
    run.train(90, 110, policy=1)
    assert run.requests == [0, 1]
    assert [record.message.split(", ")[0] for record in caplog.records] == [
        "An evaluation of policy 0 is skipped"
    ], "one line, however many are skipped"
    run.answer("1", 110)
    run.answer("2", 110, policy=1)
    run.finish()
    assert [written[:2] for written in run.monitor.written] == [(0, 110), (1, 110)], "one after the other"
    run.train(410)
    assert run.requests == [0, 1, 0]


def test_an_evaluation_that_fails_is_an_incident_and_the_next_one_is_played(tmp_path):
    run = Run(tmp_path)
    run.evaluate("", 110)
    (incident,) = run.published
    assert isinstance(incident, Incident) and incident.kind == "failed_evaluations"
    assert "policy 0 at 110 env frames failed; training continues: " in incident.text
    assert "the env cannot be made" in incident.text
    assert run.incidents.summaries(0)["health/failed_evaluations"] == 1
    run.evaluate("4", 210)
    assert [written[1] for written in run.monitor.written] == [210]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("start", "not ready after 4 s"),
        ("step", "was stuck: no sign of life for 3 s"),
        ("endless", "not done after --eval_timeout_seconds=2; does each episode of the env end"),
    ],
)
def test_an_evaluation_that_hangs_is_an_incident_and_the_next_one_is_played(
    tmp_path, monkeypatch, where, reason
):
    monkeypatch.setattr(during_training, "CHILD", f"{CHILDREN}:Hangs")
    limits = {
        "start": {"reset_timeout_seconds": 1, "heartbeat_reporting_interval": 3},
        "step": {"reset_timeout_seconds": 3600, "heartbeat_reporting_interval": 3},
        "endless": {"eval_timeout_seconds": 2},
    }
    run = Run(tmp_path, **limits[where])
    run.evaluate(where, 110)
    (incident,) = run.published
    assert incident.kind == "failed_evaluations" and len(incident.text.splitlines()) == 1
    assert "policy 0 at 110 env frames failed; training continues: " in incident.text
    assert reason in incident.text
    run = Run(tmp_path)
    run.evaluate("4", 210)
    assert [written[1] for written in run.monitor.written] == [210]


def test_the_weights_with_the_best_evaluation_are_kept_also_by_a_resumed_run(tmp_path):
    run = Run(tmp_path, save_best_metric="eval_reward")
    run.evaluate("1 2", 110)
    assert run.best() == ["best_000000011_110_eval_reward_1.500.pth"]
    assert (run.folder / run.best()[0]).read_text() == "1 2", "the weights that were evaluated"
    run.evaluate("1", 210)
    assert run.best() == ["best_000000011_110_eval_reward_1.500.pth"]
    resumed = Run(tmp_path, save_best_metric="eval_reward")
    resumed.evaluate("1.4", 310)
    assert resumed.best() == ["best_000000011_110_eval_reward_1.500.pth"]
    resumed.evaluate("9", 410)
    assert resumed.best() == ["best_000000041_410_eval_reward_9.000.pth"]


def test_a_statistic_that_evaluations_do_not_have_is_named_once(tmp_path, caplog):
    run = Run(tmp_path, save_best_metric="eval_deaths")
    run.evaluate("1", 110)
    run.evaluate("1", 210)
    (record,) = caplog.records
    assert "--save_best_metric=eval_deaths; choose one of eval_reward, eval_kills" in record.message
    assert run.best() == []


def test_a_run_that_is_done_finishes_its_last_evaluation_with_the_last_checkpoint(tmp_path):
    run = Run(tmp_path)
    run.train(90, 110)  # the learner stops before it answers
    (run.folder / "checkpoint_000000011_112.pth").write_text("5")
    run.evaluations.finish(lambda: True)
    run.evaluations.close()
    assert [written[:2] for written in run.monitor.written] == [(0, 112)]
    assert not list(run.folder.glob("*evaluated*"))


def test_the_last_weights_are_evaluated_at_the_end_although_their_evaluation_was_skipped(tmp_path):
    run = Run(tmp_path)
    run.train(90, 110)
    run.answer("1", 110)
    run.train(210)
    (run.folder / "checkpoint_000000021_210.pth").write_text("5")
    run.evaluations.finish(lambda: True)
    run.evaluations.close()
    assert [(written[1], written[2]["eval/reward"]) for written in run.monitor.written] == [
        (110, 1),
        (210, 5),
    ]


def test_a_run_that_is_stopped_does_not_wait_and_leaves_no_process_and_no_file(tmp_path):
    run = Run(tmp_path)
    run.train(90, 110)
    run.answer("1", 110)
    run.evaluations.tick()
    child = run.evaluations._child
    run.evaluations.finish(lambda: False)
    run.evaluations.close()
    assert not child.is_alive and run.monitor.written == []
    assert not (run.folder / "evaluated.pth").exists()


def plan_for(flags):
    config = parse_config(
        [
            "--env=gym_CartPole-v1",
            "--num_envs_per_worker=2",
            "--eval_every_env_steps=9",
            f"--eval_flags={flags}",
        ],
        resolve_family,
    )
    return make_plan(config, gym.make("CartPole-v1"), resolve_family(config.env_name))


def test_the_flags_of_evaluations_may_name_another_env_and_leave_the_others_as_in_training():
    plan = plan_for("--env=gym_CartPole-v0 --eval_episodes=7")
    changed = plan_evaluation(plan)
    (policy,) = changed.cast.policies.values()
    assert changed.session.envs.cfg.env == policy.config.env_name == "gym_CartPole-v0"
    assert changed.session.topology.num_episodes == policy.config.evaluation.eval_episodes == 7
    assert policy.config.model == plan.config.model


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--eval_epsodes=3", "--eval_flags=.*--eval_epsodes"),
        ("--env=gym_Nothing-v0", "--eval_flags=.*Nothing"),
        ("--env='gym", "--eval_flags="),
        ("--env=gym_Acrobot-v1", "--eval_flags=.*spaces"),
    ],
)
def test_wrong_flags_of_evaluations_are_refused(flags, complaint):
    with pytest.raises(ConfigError, match=complaint):
        plan_evaluation(plan_for(flags))


def test_the_best_policy_of_evaluations_is_refused_without_evaluations():
    with pytest.raises(ConfigError, match="--eval_every_env_steps=N"):
        parse_config(["--env=gym_CartPole-v1", "--save_best_metric=eval_reward"], resolve_family)
