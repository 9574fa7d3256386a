"""Whatever an env reports at the end of an episode: numbers arrive, the rest harms nothing."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest

from sample_factory.envs.end_infos import (
    MAX_INFO_ENTRIES,
    MAX_INFO_TEXT,
    MAX_STAT_NAME,
    MAX_STATS,
    extra_stats,
    level_of,
    portable_info,
    true_objective,
)
from sample_factory.exchange.messages import EpisodeReport
from sample_factory.runtime.queues import MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("info", "objective"),
    [
        ({}, 7.0),
        ({"true_reward": 1}, 1.0),
        ({"true_objective": 2, "true_reward": 1}, 2.0),
        ({"true_objective": np.float32(2), "episode": {"r": 3.0}}, 2.0),
        ({"episode": {"r": np.float32(3), "l": 5, "t": 0.1}}, 3.0),
        ({"episode": {"length": 5}}, 7.0),
        ({"episode": 12}, 7.0),
        ({"true_objective": "won", "true_reward": None, "episode": {"r": {}}}, 7.0),
    ],
)
def test_the_true_objective_is_the_envs_own_else_the_recorded_return_else_the_sum_of_rewards(info, objective):
    found = true_objective(info, 7.0)
    assert found == objective and type(found) is float


@pytest.mark.parametrize("name", ["a:map01", np.str_("skill 3"), "x" * MAX_STAT_NAME])
def test_the_level_of_an_episode_is_a_short_text(name):
    info = {"episode_level": name}
    assert level_of(info) == name and type(level_of(info)) is str
    assert extra_stats(info) == ({}, {}) and level_of({}) == ""


@pytest.mark.parametrize("name", [3, None, "two\nlines", "x" * (MAX_STAT_NAME + 1)])
def test_what_is_no_name_of_a_level_is_left_out(name):
    info = {"episode_level": name}
    assert level_of(info) == "" and extra_stats(info) == ({}, info)


def of_stats(stats):
    return extra_stats({"episode_extra_stats": stats})


class Raises:
    def __float__(self):
        raise LookupError


def test_statistics_are_numbers_bools_and_arrays_with_one_number():
    numbers = {"a": 2, "b": True, "c": np.float32(2.5), "d": np.array(3), "e": Fraction(1, 2), 4: np.bool_(0)}
    found, left_out = of_stats(numbers)
    assert found == {"a": 2, "b": 1, "c": 2.5, "d": 3, "e": 0.5, "4": 0} and not left_out
    assert {type(number) for number in found.values()} == {float}
    assert extra_stats({}) == ({}, {})


def test_what_is_no_number_is_left_out_by_name():
    others = {"a": "corridor", "b": None, "c": [1], "d": np.zeros(3), "e": 10**400, "f": Raises(), "g": 1j}
    found, left_out = of_stats({**others, "kills": 2})
    assert found == {"kills": 2} and left_out.keys() == others.keys()
    assert of_stats("corridor")[1] == {"episode_extra_stats": "corridor"}
    assert extra_stats({"true_objective": "won"})[1] == {"true_objective": "won"}


def test_statistics_within_dicts_are_named_by_the_way_to_them():
    found, left_out = of_stats({"team": {"red": {"kills": 1}, "map": "corridor"}, "kills": 2})
    assert found == {"team/red/kills": 1, "kills": 2} and left_out == {"team/map": "corridor"}
    cycle = {"kills": 1}
    cycle["self"] = cycle
    assert len(of_stats(cycle)[0]) == 4


def test_the_largest_report_fits_into_a_message():
    assert of_stats({"x" * 1_000_000: 1.0, "line\nbreak": 1.0, "kills": 2})[0] == {"kills": 2}
    wide = {f"{i:05d}".rjust(MAX_STAT_NAME, "\U0001d4b3"): float(i) for i in range(10_000)}
    key = "\U0001d4b3" * MAX_INFO_TEXT
    info = {f"{i}{key[len(str(i)) :]}": key for i in range(10_000)}
    end_info = {
        "long" * MAX_INFO_TEXT: 1,
        "huge": 10**100_000,
        "outer": info,
        3: 4,
        "episode_extra_stats": wide,
    }
    (numbers, left_out), portable = extra_stats(end_info), portable_info(end_info)
    assert list(numbers) == list(wide)[:MAX_STATS] and list(left_out) == [list(wide)[MAX_STATS]]
    assert list(portable) == ["outer"] and len(portable["outer"]) == MAX_INFO_ENTRIES
    report = EpisodeReport(0, 1.0, 1, 1.0, numbers, portable)
    assert len(pickle.dumps([copy.deepcopy(report)])) < MAX_MESSAGE_BYTES


def test_an_info_that_contains_itself_is_reported_to_a_depth():
    info = {"level": 3}
    info["self"] = info
    assert portable_info(info)["self"]["level"] == 3
