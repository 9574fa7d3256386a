"""Matches against past selves as in a run, but in threads of one process, with models whose action is their
only weight: 0 for the live policy, others for past selves."""

import functools
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import (
    EpisodeReport,
    Incident,
    MatchReport,
    OpponentLost,
    Opponents,
    reports_in,
)
from sample_factory.exchange.trajectory_buffers import INACTIVE
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout import rollout_worker
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker
from tests.counting import EPISODE, LAST_ACTION, STEP
from tests.counting_model import CountingModel
from tests.sampling.test_sampling_in_threads import Sampler

LIVE_WEIGHT, PAST_WEIGHTS = 0, (2, 3)
GONE = Milestone(0, version=9, env_frames=90)  # without a file


class ActsWithItsWeight(CountingModel):
    def act(self, observations, state, *choice):
        output = super().act(observations, state, *choice)
        return output._replace(actions=self.weight.expand(len(state), 1))


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def past_selves(train_dir):
    """Milestones with files."""
    milestones = [Milestone(0, weight, env_frames=10 * weight) for weight in PAST_WEIGHTS]
    for milestone in milestones:
        path, weight = milestone.path(train_dir / "test"), milestone.version
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"model": {"weight": torch.full((1,), float(weight))}, "train_step": weight}, path)
    return milestones


def sampler_of(patch, train_dir, milestones, share=1.0, num_policies=1):
    patch.setattr(rollout_worker, "PastSelves", lambda _: PastSelves(share))
    folder = {"train_dir": str(train_dir), "experiment": "test"}
    sampler = Sampler(patch, 2, model=ActsWithItsWeight, num_policies=num_policies, **folder)
    weights = np.ones((num_policies, len(milestones)), np.float32)
    for inbox in sampler.channels.inboxes:
        inbox.put(Opponents(0, tuple(milestones), weights))
    return sampler


@pytest.fixture
def make_sampler(monkeypatch, train_dir):
    return functools.partial(sampler_of, monkeypatch, train_dir)


@pytest.fixture(scope="module")
def played(train_dir, past_selves):
    """Returns the steps and the reports of a run in which every match is against past selves."""
    with pytest.MonkeyPatch.context() as patch, sampler_of(patch, train_dir, past_selves) as sampler:
        steps = Steps(sampler, 30)
        reports = list(reports_in(sampler.channels.reports.get_many(0.0, 100_000)))
    return steps, reports


class Steps:
    """Steps in full buffers: which policy learns from them, actions, whether an episode ended, and so on."""

    def __init__(self, sampler, count):
        buffers, self.columns = sampler.buffers, []
        for _ in range(count):
            for buffer in self._take(sampler, 8):
                self.columns.append(
                    (
                        buffers.policy_ids[buffer].copy(),
                        buffers.outputs[buffer, :, 0].copy(),
                        buffers.terminated[buffer] | buffers.truncated[buffer],
                        buffers.versions[buffer].copy(),
                        buffers.obs["obs"][buffer].copy(),
                        buffers.outputs[buffer, :, 2].copy(),
                    )
                )
                buffers.release(np.array([buffer]), 0)
        parts = zip(*self.columns)
        self.policy_ids, self.actions, self.ended, self.versions, self.obs, self.states = map(np.stack, parts)

    def _take(self, sampler, count):
        """Returns full buffers of policy 0; releases those of other policies, so that free ones remain."""
        found, deadline = [], time.monotonic() + 20
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} trajectories in 20 s"
            for policy, learner in enumerate(sampler.channels.learners):
                for message in learner.get_many(timeout=0.0 if policy else 0.05):
                    if policy == 0:
                        found += message.buffer_indices
                    else:
                        sampler.buffers.release(np.array(message.buffer_indices), policy)
        return found


def test_past_selves_sent_before_a_worker_starts_play_in_its_first_matches(make_sampler, past_selves):
    sampler = make_sampler(past_selves)
    sampler.buffers.reclaim(0)
    successor = RolloutWorker(sampler.plan.envs, 0, *sampler.shared)
    for split in successor._splits:
        assert split.vector._players.is_live.reshape(-1, 2).sum(axis=1).tolist() == [1, 1]


def test_only_the_steps_of_the_live_policy_are_trained_on(played):
    steps, _ = played
    live, past = steps.actions == LIVE_WEIGHT, np.isin(steps.actions, PAST_WEIGHTS)
    assert (live | past).all()
    assert (steps.policy_ids[live] == 0).all() and (steps.policy_ids[past] == INACTIVE).all()
    assert {*np.unique(steps.actions[past])} == set(PAST_WEIGHTS), "every past self has acted"
    assert (steps.versions[past] == steps.actions[past]).all(), "the requested past self has acted"


def test_the_env_gets_a_past_selfs_actions_and_its_recurrent_state_counts_its_own_steps(played):
    steps, _ = played
    assert np.array_equal(steps.obs[:, 1:, LAST_ACTION], steps.actions)
    assert np.array_equal(steps.states, steps.obs[:, :-1, STEP])


def test_a_player_changes_only_where_its_agents_episode_ends(make_sampler, past_selves):
    with make_sampler(past_selves, share=0.5) as sampler:
        steps = Steps(sampler, 30)
    changed = steps.actions[:, 1:] != steps.actions[:, :-1]
    assert changed.any() and steps.ended[:, :-1][changed].all()
    assert (steps.obs[:, 1:-1, EPISODE][changed] > steps.obs[:, :-2, EPISODE][changed]).all()


def test_only_live_policies_have_episodes_and_each_match_against_a_past_self_has_a_result(
    played, past_selves
):
    _, reports = played
    matches = [report for report in reports if isinstance(report, MatchReport)]
    assert {match.past_self for match in matches} == set(past_selves)
    assert {match.policy_id for match in matches} == {0}
    assert {match.score for match in matches} == {0.0, 1.0}
    episodes = [report for report in reports if isinstance(report, EpisodeReport)]
    assert len(episodes) < 1.7 * len(matches), "two agents end an episode in each match"


def test_an_unreadable_past_self_is_reported_once_and_its_matches_are_played_to_their_end(
    make_sampler, past_selves
):
    with make_sampler([past_selves[0], GONE]) as sampler:
        steps = Steps(sampler, 30)
        reports = list(reports_in(sampler.channels.reports.get_many(0.0, 100_000)))
    (incident,) = [report for report in reports if isinstance(report, Incident)]
    assert incident.kind == "lost_opponents" and GONE.path(Path()).name in incident.text
    assert [report for report in reports if isinstance(report, OpponentLost)] == [OpponentLost(GONE)]
    replaced = (steps.actions == LIVE_WEIGHT) & (steps.policy_ids == INACTIVE)
    assert replaced.any(), "the live policy replaces it, and learns nothing from it"
    assert (steps.policy_ids[np.isin(steps.actions, PAST_WEIGHTS)] == INACTIVE).all()


def test_each_policys_past_selves_are_served_by_its_own_workers(make_sampler, past_selves):
    with make_sampler(past_selves, num_policies=2) as sampler:
        steps = Steps(sampler, 20)
    past = np.isin(steps.actions, PAST_WEIGHTS)
    assert past.any() and (steps.policy_ids[past] == INACTIVE).all()
