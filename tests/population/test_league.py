import itertools
import json

import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.config.flags import ConfigError
from sample_factory.config.population_flags import SelfplayFlags
from sample_factory.exchange.messages import MatchReport, MilestoneSaved, OpponentLost, PolicyReplaced
from sample_factory.population import league as league_module
from sample_factory.population.league import (
    ELO_STEP,
    FILE_NAME,
    MATCHES_PER_UPDATE,
    WINDOW,
    League,
    Record,
    elo_gain,
    expected_score,
    thinned,
)


@pytest.fixture
def make_league(tmp_path):
    def make(num_policies=1, **flags):
        return League(SelfplayFlags(selfplay_past_share=0.5, **flags), tmp_path, num_policies)

    return make


@pytest.fixture
def save(tmp_path):
    def save(league, frames, policy=0):
        """Creates a milestone with an empty file."""
        milestone = Milestone(policy, frames // 10, frames)
        path = milestone.path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        league.handle(MilestoneSaved(milestone))
        return milestone

    return save


def play(league, past_self, scores, policy=0):
    for score in scores:
        league.handle(MatchReport(policy, past_self, score))


def test_a_new_milestone_is_a_change_once_and_an_opponent_afterwards(make_league, save):
    league = make_league()
    past_self = save(league, 100)
    assert league.take_changed() == {0} and league.take_changed() == set()
    opponents = league.opponents(0)
    assert (opponents.policy_id, opponents.past_selves) == (0, (past_self,))
    assert opponents.weights.tolist() == [[1.0]]


def test_each_policy_has_past_selves_of_its_own_and_weights_for_every_live_policy(make_league, save):
    league = make_league(num_policies=2)
    save(league, 100, policy=1)
    assert league.take_changed() == {1} and league.opponents(1).weights.shape == (2, 1)
    assert [len(league.opponents(policy).past_selves) for policy in (0, 1)] == [0, 1]


def test_win_rates_are_kept_for_each_pair_and_ratings_for_each_player(make_league, save):
    league = make_league(num_policies=2)
    past_self = save(league, 100)
    play(league, past_self, [1.0, 1.0, 1.0], policy=0)
    play(league, past_self, [0.0], policy=1)
    first, second = league.summaries(0), league.summaries(1)
    assert first["zz_selfplay/win_rate"] == 3.5 / 4 and second["zz_selfplay/win_rate"] == 0.25
    assert first["zz_selfplay/elo"] > 1000 > second["zz_selfplay/elo"]
    league.save()
    elos = json.loads((league._folder / FILE_NAME).read_text())
    everybody = [entry["elo"] for entry in (*elos["policies"], *elos["past_selves"].values())]
    assert sum(everybody) == pytest.approx(3000), "what one wins another loses"


def test_win_rates_are_over_those_that_a_policy_has_met(make_league, save):
    league = make_league(num_policies=2)
    met = save(league, 100)
    save(league, 100, policy=1)
    assert set(league.summaries(0)) == {"zz_selfplay/elo", "zz_selfplay/num_opponents"}
    play(league, met, [1.0] * 9)
    summaries = league.summaries(0)
    assert summaries["zz_selfplay/win_rate"] == summaries["zz_selfplay/lowest_win_rate"] == 0.95
    assert summaries["zz_selfplay/num_opponents"] == 1


def test_a_policy_that_takes_over_another_gets_its_rating_and_results(make_league, save):
    league = make_league(num_policies=2, selfplay_sampling="prioritized")
    both, donors, own = save(league, 100), save(league, 200), save(league, 300)
    for policy, past_self, score in ((0, both, 1.0), (0, donors, 1.0), (1, both, 0.0), (1, own, 0.0)):
        play(league, past_self, [score] * 5, policy)
    before = league.summaries(0)
    assert league.summaries(1) != before
    league.take_changed()
    league.handle(PolicyReplaced(policy_id=1, donor=0))
    assert league.summaries(0) == league.summaries(1) == before and league.take_changed() == {0, 1}
    of_donor, of_receiver = league.opponents(0).weights
    assert (of_donor == of_receiver).all()


def test_a_past_self_starts_with_the_rating_of_its_policy(make_league, save, tmp_path):
    league = make_league()
    play(league, save(league, 100), [1.0] * 50)
    save(league, 200)
    league.save()
    saved = json.loads((tmp_path / FILE_NAME).read_text())
    second = next(entry for name, entry in saved["past_selves"].items() if "_200." in name)
    assert second["elo"] == saved["policies"][0]["elo"] > 1050


def test_prioritized_weights_are_a_power_of_the_chance_to_lose_and_never_zero(make_league, save):
    league = make_league(selfplay_sampling="prioritized", selfplay_priority_exponent=2.0)
    easy, hard = save(league, 100), save(league, 200)
    play(league, easy, [1.0] * 1000)
    play(league, hard, [0.0])
    assert league.opponents(0).weights.tolist() == [[pytest.approx(1e-3), pytest.approx(0.75**2)]]


def test_prioritized_weights_are_a_change_after_a_number_of_matches(make_league, save):
    for sampling, changed in (("prioritized", {0}), ("uniform", set())):
        league = make_league(selfplay_sampling=sampling)
        past_self = save(league, 100)
        league.take_changed()
        play(league, past_self, [1.0] * (MATCHES_PER_UPDATE - 1))
        assert league.take_changed() == set()
        play(league, past_self, [1.0])
        assert league.take_changed() == changed


def test_results_and_ratings_survive_and_milestones_of_earlier_runs_are_found(make_league, save):
    league = make_league(num_policies=2, selfplay_sampling="prioritized")
    past_self = save(league, 100)
    save(league, 50, policy=1)
    play(league, past_self, [1.0, 0.0, 0.0])
    league.save()
    again = make_league(num_policies=2, selfplay_sampling="prioritized")
    assert [again.summaries(i) for i in range(2)] == [league.summaries(i) for i in range(2)]
    before, after = ([one.opponents(policy) for policy in range(2)] for one in (league, again))
    assert [one.past_selves for one in before] == [one.past_selves for one in after]
    assert all((one.weights == other.weights).all() for one, other in zip(before, after))


def test_milestones_without_results_are_past_selves_too(make_league, save, tmp_path):
    save(make_league(), 100)
    (tmp_path / "checkpoint_p0" / "milestones" / "mine.pth.milestone").touch()
    assert len(make_league().opponents(0).past_selves) == 1


def test_a_past_self_without_results_in_the_file_has_the_rating_of_its_policy_there(make_league, save):
    league = make_league(num_policies=2)
    play(league, save(league, 100), [1.0] * 50)
    league.save()
    late, other = save(league, 200), save(league, 200, policy=1)  # and kill -9
    again = make_league(num_policies=2)
    play(again, late, [0.5])  # a draw of equals moves no rating
    assert again.summaries(0)["zz_selfplay/elo"] == league.summaries(0)["zz_selfplay/elo"] > 1050
    play(again, other, [0.5], policy=1)
    assert again.summaries(1)["zz_selfplay/elo"] == 1000


def test_a_lost_past_self_is_no_longer_used_and_its_results_are_ignored(make_league, save):
    league = make_league()
    lost, kept = save(league, 100), save(league, 200)
    league.take_changed()
    league.handle(OpponentLost(lost))
    assert league.take_changed() == {0} and league.opponents(0).past_selves == (kept,)
    play(league, lost, [1.0])
    league.handle(OpponentLost(lost))
    assert league.summaries(0)["zz_selfplay/elo"] == 1000 and league.take_changed() == set()


@pytest.mark.parametrize("text", ["{", '{"policies": 3}', '{"policies": [{"elo": "high"}]}'])
def test_a_file_that_cannot_be_read_is_refused_by_name(make_league, tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigError, match="league.json.*repair it, or delete it"):
        make_league()


def test_a_full_disk_is_logged_and_does_not_end_the_run(make_league, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(league_module, "write_atomically", full)
    make_league().save()
    assert "Could not save the results of self-play" in caplog.text and "No space left" in caplog.text


def frames(milestones):
    return [milestone.env_frames for milestone in milestones]


def test_the_past_selves_in_use_are_limited_and_spread_over_the_whole_training():
    milestones = [Milestone(0, i, 10 * i) for i in range(1000)]
    used = frames(thinned(milestones, 8))
    assert len(used) == 8 and used[0] == 0 and used[-1] == 9990
    assert max(after - before for before, after in itertools.pairwise(used)) <= 3 * 10000 / 7


def test_a_new_milestone_is_always_in_use_and_replaces_at_most_one():
    milestones = [Milestone(0, i, 10 * i) for i in range(40)]
    for limit in (1, 2, 5):
        for count in range(1, 40):
            before, now = thinned(milestones[:count], limit), thinned(milestones[: count + 1], limit)
            assert now[-1] == milestones[count] and len(set(before) - set(now)) <= 1
            assert len(now) == min(limit, count + 1)


@pytest.mark.parametrize(("gap", "expected"), [(0, 0.5), (400, 10 / 11), (-400, 1 / 11), (200, 0.7597)])
def test_the_expected_score_follows_elos_formula(gap, expected):
    assert expected_score(1000 + gap, 1000) == pytest.approx(expected, abs=1e-4)


def test_an_expected_result_changes_no_rating_and_a_surprising_one_changes_it_most():
    assert elo_gain(1000, 1000, 0.5) == 0.0
    assert elo_gain(1000, 1000, 1.0) == ELO_STEP / 2
    assert elo_gain(800, 1200, 1.0) == pytest.approx(ELO_STEP * 10 / 11)


def test_a_win_rate_begins_at_a_half_and_is_a_mean_of_the_first_matches():
    record = Record()
    assert record.win_rate == 0.5
    for score in (1.0, 1.0, 0.0):
        record = record.with_result(score)
    assert record == (3, pytest.approx((0.5 + 2) / 4))


def test_old_matches_lose_their_weight():
    record = Record()
    for _ in range(10 * WINDOW):
        record = record.with_result(1.0)
    for _ in range(WINDOW):
        record = record.with_result(0.0)
    assert record.win_rate == pytest.approx((1 - 1 / WINDOW) ** WINDOW, abs=0.01)
