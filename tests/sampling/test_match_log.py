import pytest

from sample_factory.exchange.messages import EpisodeReport, MatchReport
from sample_factory.sampling.episode_log import EpisodeLog
from sample_factory.sampling.match_log import MatchLog
from sample_factory.sampling.matchmaker import Player

LIVE, PAST = Player(1), Player(0, "a")


@pytest.mark.parametrize(("own", "other", "score"), [(2.0, 1.0, 1.0), (1.0, 2.0, 0.0), (1.0, 1.0, 0.5)])
def test_the_higher_objective_wins_and_a_tie_is_a_draw(own, other, score):
    log = MatchLog(2)
    assert log.end(0, PAST, other) == []
    assert log.end(1, LIVE, own) == [MatchReport(1, "a", score)]


def test_live_policies_among_themselves_have_no_result_and_neither_have_past_selves():
    log = MatchLog(2)
    assert log.end(0, LIVE, 1.0) + log.end(1, Player(0), 2.0) == []
    assert log.end(0, PAST, 1.0) + log.end(1, Player(1, "b"), 2.0) == []


def test_a_live_policy_has_a_result_against_each_of_several_past_selves():
    log = MatchLog(3)
    log.end(2, PAST, 5.0), log.end(0, Player(0, "b"), 1.0)
    assert log.end(1, LIVE, 3.0) == [MatchReport(1, "a", 0.0), MatchReport(1, "b", 1.0)]


def test_where_agents_end_one_by_one_the_last_episode_of_each_counts():
    log = MatchLog(2)
    log.end(0, LIVE, 0.0), log.end(0, LIVE, 9.0)
    assert log.end(1, PAST, 5.0) == [MatchReport(1, "a", 1.0)]
    assert log.end(1, PAST, 5.0) == [], "a new match"


def test_an_objective_that_is_no_number_gives_no_result():
    log = MatchLog(2)
    assert log.end(0, LIVE, float("nan")) + log.end(1, PAST, 1.0) == []


def test_a_match_whose_env_was_lost_has_no_result():
    log = MatchLog(2)
    log.end(0, PAST, 0.0)
    log.abandon()
    assert log.end(1, LIVE, 1.0) == []


def test_a_past_selfs_episodes_are_no_episodes_of_its_policy_and_true_objective_decides():
    log = EpisodeLog(["env 0", "env 1"], agents_per_env=2, frameskip=1)
    log.end(2, LIVE, {"true_objective": 1.0})
    log.end(3, PAST, {"true_objective": 4.0})
    episode, match = log.reports
    assert isinstance(episode, EpisodeReport) and episode.policy_id == 1
    assert match == MatchReport(1, "a", 0.0)
