"""Results of an evaluation: which episodes count, confidence intervals, the --json file."""

import json
import math

import numpy as np
import pytest

from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_files import write_json
from sample_factory.evaluation.result_statistics import (
    MIN_EPISODES,
    mean_and_std,
    t_quantile,
    win_rate,
)
from sample_factory.evaluation.results import EpisodeCount, EpisodeResult, Evaluation


def episode(env, agent, reward):
    return EpisodeResult(agent, reward, 1, reward, env=env)


def test_each_agent_plays_its_share_and_episodes_that_are_repeated_count_once():
    def add(env, agent, reward):
        return count.add(EpisodeResult(agent, reward, 1, reward, env=env), env, agent)

    count = EpisodeCount(np.array([[2, 1], [1, 1]]))
    assert [add(0, 0, reward) for reward in (1.0, 2.0, 3.0)] == [0, 1, None]
    assert add(1, 1, 4.0) == 0 and not count.is_complete
    count.repeat(slice(1, 2))  # the worker of env 1 is replaced
    assert add(1, 1, 5.0) is None, "it has counted already"
    assert add(1, 0, 6.0) == add(0, 1, 7.0) == 0 and count.is_complete
    places = [(found.env, found.agent, found.reward) for found in count.ended]
    assert places == [(0, 0, 1.0), (0, 1, 7.0), (1, 0, 6.0), (1, 1, 4.0), (0, 0, 2.0)]


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


@pytest.mark.parametrize("matches", [1, 3, 10, 1000])
def test_the_interval_stays_within_0_and_1(matches):
    assert win_rate(0, matches).low == 0.0 and win_rate(matches, matches).high == 1.0
    assert win_rate(0, matches).high > 0.0 and win_rate(matches, matches).low < 1.0


@pytest.mark.parametrize(
    "degrees, quantile", [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (30, 2.0423), (99, 1.9842)]
)
def test_quantiles_of_students_t_equal_those_of_published_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_the_interval_of_a_mean_holds_it_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = [
        found.low <= 3.0 <= found.high
        for found in map(mean_and_std, rng.normal(3.0, 2.0, (2000, MIN_EPISODES)).tolist())
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("episodes", [1, 2, MIN_EPISODES - 1])
def test_a_few_episodes_have_no_interval(episodes):
    found = mean_and_std([*range(episodes)])
    assert math.isnan(found.low) and found.std == pytest.approx(np.std(range(episodes)))
    played = tuple(episode(0, 0, float(reward)) for reward in range(episodes))
    assert "95 %" not in Evaluation((PolicyChoice(0, "latest"),), played, 1, 0.5).summary()


def test_numbers_that_are_not_finite_are_null_in_the_json_file_at_any_depth(tmp_path):
    played = episode(0, 0, math.inf)._replace(extra_stats={"lap": math.nan, "goals": 2.0})
    result = Evaluation((PolicyChoice(0, "latest"),), (played,), 1, 0.5)
    write_json(str(tmp_path / "out.json"), {"evaluations": [result.figures()]})
    text = (tmp_path / "out.json").read_text()
    (found,) = json.loads(text, parse_constant=pytest.fail)["evaluations"]
    assert found["episodes"][0]["extra_stats"] == {"lap": None, "goals": 2.0}
    assert found["episodes"][0]["reward"] is None
    assert found["statistics"]["goals"] == {"mean": 2.0, "std": 0.0, "low": None, "high": None}


def test_an_extra_statistic_with_the_name_of_a_result_does_not_replace_it():
    named_alike = {"reward": 70.0, "length": 80.0, "agent": 90.0, "goals": 2.0}
    played = episode(1, 0, 5.0)._replace(extra_stats=named_alike)
    result = Evaluation((PolicyChoice(0, "latest"),), (played,), 1, 0.5)
    means = {name: found.mean for name, found in result.statistics.items()}
    assert means == {"reward": 5.0, "length": 1.0, "true_objective": 5.0, "agent": 90.0, "goals": 2.0}
    (row,) = result.rows()
    assert list(row.values()) == ["latest", 0, "", 1, 0, 5.0, 1, 5.0, 2.0]
    assert result.figures()["episodes"][0]["extra_stats"] == named_alike


@pytest.mark.parametrize("num_wanted, is_partial", [(12, False), (13, True), (None, False)])
def test_the_result_of_one_agent_is_partial_if_the_whole_evaluation_is(num_wanted, is_partial):
    episodes = tuple(episode(0, number % 2, 1.0) for number in range(12))
    result = Evaluation((PolicyChoice(0, "latest"),) * 2, episodes, 12, 0.5, None, num_wanted)
    for agent in (0, 1):
        of_agent = result.for_agent(agent)
        assert len(of_agent.episodes) == 6 and of_agent.is_partial == result.is_partial == is_partial


def in_levels(*levels):
    """Returns an evaluation with 10 episodes in each of some levels: the rewards 0 to 9, and 10 more for each
    later level."""
    played = [
        episode(0, 0, 10.0 * number + reward)._replace(level=level)
        for number, level in enumerate(levels)
        for reward in range(10)
    ]
    return Evaluation((PolicyChoice(0, "latest"),), tuple(played), 1, 0.5, num_wanted=len(played))


def test_results_are_shown_by_level_and_of_all_levels():
    result = in_levels("easy", "hard")
    table = """
level       episodes  reward                     length
easy        10        4.500 (2.334 to 6.666)     1.000 (1.000 to 1.000)
hard        10        14.500 (12.334 to 16.666)  1.000 (1.000 to 1.000)
all levels  20        9.500 (6.731 to 12.269)    1.000 (1.000 to 1.000)"""
    assert result.summary().endswith(table)
    assert {level: own.reward for level, own in result.by_level.items()} == {
        "easy": mean_and_std(range(10)),
        "hard": mean_and_std(range(10, 20)),
    }
    assert not any(own.is_partial for own in result.by_level.values())
    assert result.figures()["levels"]["hard"]["reward"]["mean"] == 14.5
    assert [row["level"] for row in result.rows()] == ["easy"] * 10 + ["hard"] * 10


def test_episodes_of_an_env_without_levels_have_no_table():
    result = in_levels("")
    assert result.by_level == result.figures()["levels"] == {}
    assert "level" not in result.summary()


def test_the_table_of_levels_has_the_objective_where_one_level_reports_its_own():
    result = in_levels("easy", "hard")
    last = result.episodes[-1]._replace(true_objective=100.0)
    lines = result._replace(episodes=(*result.episodes[:-1], last)).summary().splitlines()
    assert lines[1].split() == ["level", "episodes", "reward", "length", "objective"]
    assert lines[2].endswith("  4.500 (2.334 to 6.666)"), "the reward, where it is the objective"


def test_costs_have_a_line_of_their_own():
    result = in_levels("")
    costly = [own._replace(extra_stats={"cost": 2.0, "other": 1.0}) for own in result.episodes]
    assert "cost      2.000 +- 0.000" in result._replace(episodes=tuple(costly)).summary().splitlines()[-1]
    assert "cost" not in result.summary()
