import pytest

from sample_factory.population.league import ELO_STEP, WINDOW, Record, elo_gain, expected_score


@pytest.mark.parametrize(("gap", "expected"), [(0, 0.5), (400, 10 / 11), (-400, 1 / 11), (200, 0.7597)])
def test_the_expected_score_follows_elos_formula(gap, expected):
    assert expected_score(1000 + gap, 1000) == pytest.approx(expected, abs=1e-4)


def test_expected_scores_of_both_sides_add_up_to_one():
    assert expected_score(1100, 950) + expected_score(950, 1100) == pytest.approx(1.0)


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
