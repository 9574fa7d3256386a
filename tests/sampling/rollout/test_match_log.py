import itertools

import numpy as np
import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import EpisodeReport, MatchReport
from sample_factory.sampling.matchmaking.matchmaking import Player
from sample_factory.sampling.rollout.episode_log import EpisodeLog, MatchLog

A = Milestone(0, version=1, env_frames=10)
B = Milestone(0, version=2, env_frames=20)
LIVE, PAST = Player(1), Player(0, A)

BEGUN_0, BEGUN_1 = np.array([True, False]), np.array([False, True])


def results(*ended):
    """Returns the results of a match in which these (agent, player, objective) end, in this order."""
    log = MatchLog(num_agents=3)
    for episode in ended:
        log.end(*episode)
    return log.take_results()


@pytest.mark.parametrize(("own", "other", "score"), [(2.0, 1.0, 1.0), (1.0, 2.0, 0.0), (1.0, 1.0, 0.5)])
def test_the_higher_objective_wins_and_a_tie_is_a_draw(own, other, score):
    assert results((0, PAST, other), (1, LIVE, own)) == [MatchReport(1, A, score)]


def test_live_policies_among_themselves_have_no_result_and_neither_have_past_selves():
    assert results((0, LIVE, 1.0), (1, Player(0), 2.0)) == []
    assert results((0, PAST, 1.0), (1, Player(1, B._replace(policy_id=1)), 2.0)) == []


def test_a_live_policy_has_a_result_against_each_of_several_past_selves():
    ended = (2, PAST, 5.0), (0, Player(0, B), 1.0), (1, LIVE, 3.0)
    assert results(*ended) == [MatchReport(1, A, 0.0), MatchReport(1, B, 1.0)]


@pytest.mark.parametrize("live", range(4))
def test_a_live_policy_has_a_result_against_each_past_self_of_another_team_and_against_no_team_mate(live):
    for teams in itertools.product(range(3), repeat=4):
        log = MatchLog(num_agents=4, teams=teams)
        for agent, team in enumerate(teams):
            log.end(agent, LIVE if agent == live else Player(0, A._replace(version=agent)), float(team))
        assert {(report.past_self.version, report.score) for report in log.take_results()} == {
            (agent, float(teams[live] > team)) for agent, team in enumerate(teams) if team != teams[live]
        }


def test_where_agents_end_one_by_one_the_last_episode_of_each_counts():
    assert results((0, LIVE, 0.0), (0, LIVE, 9.0), (1, PAST, 5.0)) == [MatchReport(1, A, 1.0)]


def test_an_objective_of_nan_gives_no_result():
    assert results((0, LIVE, float("nan")), (1, PAST, 1.0)) == []


def test_a_match_is_over_when_each_agent_within_an_episode_has_ended_one_before():
    log = MatchLog(num_agents=2)
    log.end(0, LIVE, 0.0)
    assert not log.is_over(BEGUN_1) and not log.is_over(BEGUN_0 | BEGUN_1)
    log.end(1, PAST, 0.0)
    assert log.is_over(BEGUN_0), "agent 0 is in its second episode"
    log.take_results()
    assert not log.is_over(BEGUN_0), "a new match"


def test_a_match_whose_env_was_rebuilt_has_no_result():
    log = MatchLog(num_agents=2)
    log.end(0, PAST, 0.0)
    log.abandon()
    log.end(1, LIVE, 1.0)
    assert log.take_results() == []


def step(log, *acting):
    """Adds a step of four agents in which only those of `acting` are active."""
    log.add(np.zeros(4), np.isin(np.arange(4), acting))


def test_an_agent_that_misses_a_match_of_its_env_does_not_shift_the_next_one():
    log = EpisodeLog(["env 0", "env 1"], agents_per_env=2, frameskip=1)
    step(log, 2)  # agent 3 takes no part
    log.end([2], [LIVE], [{"true_objective": 1.0}])
    assert log.end_matches([2]) == [1]
    step(log, 2, 3)
    log.end([3], [PAST], [{"true_objective": 0.0}])
    assert log.end_matches([3]) == []
    step(log, 2)
    log.end([2], [LIVE], [{"true_objective": 5.0}])
    assert log.end_matches([2]) == [1]
    assert [report.score for report in log.take_reports() if isinstance(report, MatchReport)] == [1.0]


def test_episodes_of_a_past_self_are_not_reported_and_the_true_objective_decides_the_match():
    log = EpisodeLog(["env 0", "env 1"], agents_per_env=2, frameskip=1)
    log.end([2], [LIVE], [{"true_objective": 1.0}])
    log.end([3], [PAST], [{"true_objective": 4.0}])
    assert log.end_matches([2, 3]) == [1]
    episode, match = log.take_reports()
    assert isinstance(episode, EpisodeReport) and episode.policy_id == 1
    assert match == MatchReport(1, A, 0.0)
