"""The interval of a win rate against published values, and against its definition."""

import math

import pytest

from sample_factory.evaluation.result_statistics import NORMAL_QUANTILE, win_rate


@pytest.mark.parametrize(
    "wins, matches, low, high",
    [
        # Newcombe (1998), Two-sided confidence intervals for the single proportion, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_equals_that_of_published_tables(wins, matches, low, high):
    rate = win_rate(wins, matches)
    assert rate.value == wins / matches
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("wins, matches", [(1, 2), (7, 10), (50, 100), (999, 1000)])
def test_the_observed_rate_is_one_quantile_from_both_ends(wins, matches):
    rate = win_rate(wins, matches)
    for end in (rate.low, rate.high):
        deviations = abs(rate.value - end) / math.sqrt(end * (1 - end) / matches)
        assert deviations == pytest.approx(NORMAL_QUANTILE)


def test_wins_and_losses_have_mirrored_intervals():
    wins = win_rate(3, 10)
    losses = win_rate(7, 10)
    assert (1 - wins.high, 1 - wins.low) == pytest.approx((losses.low, losses.high))


@pytest.mark.parametrize("matches", [1, 3, 10, 1000])
def test_the_interval_stays_within_0_and_1(matches):
    assert win_rate(0, matches).low == 0.0 and win_rate(matches, matches).high == 1.0
    assert win_rate(0, matches).high > 0.0 and win_rate(matches, matches).low < 1.0


def test_more_matches_give_a_narrower_interval():
    widths = [rate.high - rate.low for rate in (win_rate(n // 2, n) for n in (2, 10, 100, 1000))]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.063
