"""Clocks, with a time that the tests set."""

import math

import pytest

from sample_factory.runtime.clock import Clock, Every, RateWindow


class Hand:
    """Replaces a clock's `now`."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_each_lap_takes_the_time_since_the_one_before():
    hand = Hand()
    clock = Clock(hand)
    for name, seconds in [("wait", 1.0), ("step", 2.0), ("wait", 4.0)]:
        hand.time += seconds
        clock.lap(name)
    assert clock.totals == {"wait": 5.0, "step": 2.0}


def test_shares_sum_to_one_and_start_again():
    hand = Hand()
    clock = Clock(hand)
    assert clock.take_shares() == {}
    hand.time += 3
    clock.lap("step")
    hand.time += 1
    clock.lap("wait")
    hand.time += 5
    assert clock.take_shares() == {"step": 0.75, "wait": 0.25}
    clock.lap("wait")  # the five seconds before the call belong to the next lap
    assert clock.totals == {"wait": 5.0}


@pytest.mark.parametrize("at_first, expected", [(False, [0, 0, 1, 0, 1]), (True, [1, 0, 1, 0, 1])])
def test_every_holds_once_in_so_many_seconds(at_first, expected):
    hand = Hand()
    every = Every(10, at_first, hand)
    answers = []
    for time in [100, 109, 110, 115, 140]:
        hand.time = time
        answers.append(every())
    assert answers == [bool(answer) for answer in expected]


def test_zero_seconds_means_never():
    assert not Every(0)() and not Every(-1, at_first=True)()


def test_rates_are_over_their_windows_once_these_are_full():
    rates = RateWindow((10, 60))
    assert all(math.isnan(rate) for rate in rates.rates().values())
    for second in range(201):
        # 100 events/s, but 1000/s in the last 10 seconds.
        rates.add(second, 100 * second + max(0, second - 190) * 900)
    assert rates.rates() == {10: pytest.approx(1000), 60: pytest.approx(250)}
    assert len(rates._samples) <= 62


def test_a_window_that_is_not_full_counts_the_samples_so_far():
    rates = RateWindow((10, 60))
    rates.add(0, 50)
    rates.add(5, 100)
    assert rates.rates() == {10: 10.0, 60: 10.0}
