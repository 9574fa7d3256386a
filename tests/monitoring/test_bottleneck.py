import pytest

from sample_factory.monitoring.bottleneck import (
    BottleneckWatch,
    better_num_envs,
    bottlenecks,
    describe_bottleneck,
)
from tests.monitoring.conftest import sizes


def waits(simulation: float, inference: float, learner: float) -> dict[str, float]:
    return {"rollout_worker": simulation, "policy_worker": inference, "learner": learner}


@pytest.mark.parametrize(
    "shares, expected",
    [
        (waits(0.6, 0.5, 0.02), ["learner"]),
        (waits(0.6, 0.02, 0.4), ["policy_worker"]),
        (waits(0.05, 0.6, 0.8), ["rollout_worker"]),
    ],
)
def test_the_part_that_waits_least_is_the_bottleneck(shares, expected):
    assert bottlenecks(shares) == expected


def test_parts_that_are_about_as_busy_are_named_together():
    assert bottlenecks(waits(0.03, 0.5, 0.06)) == ["rollout_worker", "learner"]
    assert bottlenecks({"rollout_worker": 0.01, "policy_worker": 0.7}) == ["rollout_worker"]
    text = describe_bottleneck(waits(0.03, 0.5, 0.06))
    assert text == "bottleneck: simulation and learner (busy 97 % and 94 %; policy workers wait 50 %)"


def test_a_run_whose_parts_all_wait_most_of_the_time_has_no_bottleneck():
    assert bottlenecks(waits(0.6, 0.7, 0.8)) == []
    for all_alike in (waits(0.6, 0.7, 0.8), waits(0.0, 0.01, 0.02)):
        assert "none in particular" in describe_bottleneck(all_alike)


@pytest.mark.parametrize("known", [{}, {"learner": 0.0}, {"learner": 0.0, "something_else": 0.0}])
def test_the_text_is_empty_before_two_parts_have_reported(known):
    assert describe_bottleneck(known) == ""


@pytest.mark.parametrize(
    "envs_per_split, agents_per_env, shares, expected",
    [
        (1, 1, waits(0.7, 0.6, 0.97), 16),
        (1, 1, waits(0.7, 0.1, 0.9), 16),  # inference is the bottleneck, with small batches
        (1, 4, waits(0.7, 0.6, 0.97), 4),
        (1, 1, waits(0.05, 0.8, 0.9), None),  # simulation is
        (1, 1, waits(0.7, 0.8, 0.02), None),  # the learner is
        (8, 1, waits(0.7, 0.6, 0.97), None),
        (1, 100, waits(0.7, 0.6, 0.97), None),
        (1, 1, {}, None),
    ],
)
def test_more_envs_are_advised_where_small_requests_make_all_others_wait(
    envs_per_split, agents_per_env, shares, expected
):
    assert better_num_envs(shares, 2, envs_per_split, agents_per_env) == expected


def test_a_bottleneck_is_news_when_it_has_changed_and_stays():
    watch = BottleneckWatch(sizes())
    learner, simulation = waits(0.6, 0.5, 0.02), waits(0.05, 0.6, 0.8)
    assert watch.news({"learner": 0.0}) == ""
    assert [watch.news(learner) for _ in range(3)] == ["", "bottleneck: learner, busy 98 %", ""]
    assert [watch.news(shares) for shares in (simulation, learner)] == ["", ""]
    assert [watch.news(simulation) for _ in range(3)] == ["", "bottleneck: simulation, busy 95 %", ""]


def test_the_news_about_few_envs_fit_the_lines_of_a_small_terminal():
    watch = BottleneckWatch(sizes(envs_per_split=1))
    shares = waits(0.7, 0.6, 0.97)
    assert watch.news(shares) == ""
    lines = watch.news(shares).splitlines()
    assert lines == [
        "bottleneck: few envs per worker (rollout workers wait 70 %)",
        "try --num_envs_per_worker=16 (see python -m sample_factory benchmark)",
    ]
    assert max(map(len, lines)) < 70
    alternating = BottleneckWatch(sizes(envs_per_split=1, alternates=True))
    news = [alternating.news(shares) for _ in range(2)][1]
    assert "--num_envs" not in news, "with --async_rl=False all wait for each other anyway"
