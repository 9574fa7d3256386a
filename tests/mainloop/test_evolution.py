"""The decisions of a population are carried out step by step, by messages."""

from functools import partial
from types import SimpleNamespace

import pytest

from sample_factory.checkpoints.milestones import BEST_SNAPSHOT, DONATION
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.population_flags import PbtFlags
from sample_factory.exchange.messages import (
    EpisodeReport,
    NewSettings,
    NewShaping,
    PolicyReplaced,
    SettingsTaken,
    Snapshot,
    SnapshotRequest,
)
from sample_factory.mainloop.subscribers import RETRY_SECONDS, Evolution
from sample_factory.monitoring.policy_progress import EpisodeStats
from sample_factory.population.pbt import Member, Population

DEFAULT = Member({"learning_rate": 1e-4}, {"delta": {"HEALTH": [0.01, -0.01]}})
DONATED = Snapshot(DONATION, 0, 7, 100, "/a/donation.pth")
NOT_DONATED = DONATED._replace(path=None)
FRAMES = [0, 100]  # policy 1 is due
OBJECTIVES = [10.0, 1.0]  # and much worse


class Episodes:
    """The last episodes of a policy, with a mean that a test gives."""

    objective = None
    are_short = False

    def __len__(self):
        return 0

    def mean(self, metric, at_least):
        return self.objective


class Inbox:
    """Passes on what is sent. take: returns whether the message was read."""

    def __init__(self, take):
        self.take = take

    def put(self, message, keep_waiting):
        return self.take(message)


class Run:
    """An Evolution of two policies with two rollout workers: what it has sent, published and written."""

    def __init__(self, folder):
        flags = PbtFlags(
            with_pbt=True, pbt_start_mutation=100, pbt_period_env_steps=50, pbt_mutation_rate=1.0
        )
        self.population = Population(flags, DEFAULT, LearningFlags(), folder, 2, seed=1)
        self.to_learners = []
        self.to_workers = []
        self.published = []
        self.written = {}
        self.seconds = 0.0
        self.learners_read = True
        self.policies = [SimpleNamespace(env_frames=0, episodes=Episodes()) for _ in range(2)]
        self.evolution = Evolution(
            self.population,
            "reward",
            SimpleNamespace(policies=self.policies, write=self.written.__setitem__),
            [Inbox(partial(self.send_to_learner, policy)) for policy in range(2)],
            SimpleNamespace(update=self.to_workers.append),
            self.published.append,
            now=lambda: self.seconds,
        )

    def send_to_learner(self, policy, message):
        self.to_learners.append((policy, message))
        return self.learners_read

    def tick(self, frames=FRAMES, objectives=OBJECTIVES):
        """Returns the messages that the tick sends to learners."""
        before = len(self.to_learners)
        for policy, env_frames, objective in zip(self.policies, frames, objectives):
            policy.env_frames, policy.episodes.objective = env_frames, objective
        self.evolution.tick()
        return self.to_learners[before:]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_replacement_goes_from_the_donors_file_to_the_receiver_and_only_then_counts(run):
    former = run.population.members[1]
    assert run.tick() == [(0, SnapshotRequest(DONATION))]
    run.evolution.handle(DONATED)
    policy, settings = run.to_learners[-1]
    assert policy == 1 and isinstance(settings, NewSettings) and settings.donation == DONATED.path
    assert run.population.members[1] == former and not run.published
    run.evolution.handle(SettingsTaken(""))
    member = run.population.members[1]
    assert member.hyperparameters == settings.hyperparameters != former.hyperparameters
    assert run.to_workers[2:] == [NewShaping(1, member.shaping)]
    assert run.published == [PolicyReplaced(1, 0)]


@pytest.mark.parametrize(
    ("window", "num_agents", "num_needed"), [(100, 1, 10), (5, 1, 5), (100, 30, 30), (100, 300, 300)]
)
def test_policies_are_compared_when_as_many_episodes_have_ended_as_agents_play_also_after_a_takeover(
    run, window, num_agents, num_needed
):
    for policy in run.policies:
        policy.episodes = EpisodeStats(window, num_agents)
    for round, replaced in enumerate([(0, 1), (1,)]):
        run.policies[1].env_frames = 100 * (round + 1)
        for number in range(num_needed):
            assert len(run.to_learners) == 2 * round, f"after {number} episodes"
            for policy_id in replaced:
                reward = OBJECTIVES[policy_id]
                run.policies[policy_id].episodes.add(EpisodeReport(policy_id, reward, 1, reward, {}))
            run.evolution.tick()
        run.evolution.handle(DONATED)
        run.evolution.handle(SettingsTaken(""))
        assert run.published == [PolicyReplaced(1, 0)] * (round + 1)
        run.policies[1].episodes.clear()  # as the monitor does


def test_only_one_decision_is_pending_at_a_time(run):
    run.tick()
    assert run.tick([100, 100]) == []


def test_a_policy_that_keeps_its_weights_gets_its_settings_without_a_donor(run):
    ((policy, settings),) = run.tick([0, 100], [10.0, 9.99])
    assert policy == 1 and settings.donation is None
    run.evolution.handle(SettingsTaken(""))
    assert run.tick([0, 100]) == [], "it is decided on"


def test_the_learner_of_a_policy_that_keeps_weights_and_settings_gets_no_message(run):
    assert run.tick([100, 0]) == []
    assert run.tick([100, 0]) == [] and run.population.due([100, 0]) is None, "it is decided on"


def test_a_learner_that_reads_no_messages_does_not_stop_the_evolution(run):
    run.learners_read = False
    assert run.tick() and run.tick() == []
    run.learners_read = True
    run.seconds = RETRY_SECONDS
    assert run.tick() == [(0, SnapshotRequest(DONATION))]


def test_rollout_workers_get_the_shaping_of_all_policies_at_the_start(run):
    members = run.population.members
    assert run.to_workers == [NewShaping(i, members[i].shaping) for i in range(2)]


@pytest.mark.parametrize("failure", [NOT_DONATED, SettingsTaken("ValueError: a reason")])
def test_a_replacement_that_fails_changes_nothing_and_is_tried_later(run, failure):
    former = run.population.members[1]
    run.tick()
    run.evolution.handle(failure)
    assert run.population.members[1] == former and not run.to_workers[2:] and not run.published
    assert run.tick() == []
    run.seconds = RETRY_SECONDS
    assert run.tick() == [(0, SnapshotRequest(DONATION))]


def test_snapshots_of_other_policies_and_for_other_uses_are_ignored(run):
    run.evolution.handle(DONATED)
    assert not run.to_learners, "nothing is decided"
    (request,) = run.tick()
    for other in (DONATED._replace(policy_id=1), DONATED._replace(name=BEST_SNAPSHOT)):
        run.evolution.handle(other)
        run.evolution.handle(other._replace(path=None))
    assert run.to_learners == [request]
    run.evolution.handle(DONATED)
    assert len(run.to_learners) == 2


def test_everything_that_evolves_is_summarised_under_v1s_tags(run):
    run.tick()
    assert run.written[0] == {
        "zz_pbt/cfg_learning_rate": 1e-4,
        "zz_pbt/rew_delta_HEALTH_0": 0.01,
        "zz_pbt/rew_delta_HEALTH_1": -0.01,
    }
