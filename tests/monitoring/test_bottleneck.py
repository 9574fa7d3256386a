import pytest

from sample_factory.monitoring.bottleneck import bottlenecks, describe_bottleneck


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
    text = describe_bottleneck(waits(0.03, 0.5, 0.06))
    assert text == "bottleneck: simulation and learner (busy 97 % and 94 %; policy workers wait 50 %)"


def test_a_run_whose_parts_all_wait_most_of_the_time_has_no_bottleneck():
    assert bottlenecks(waits(0.6, 0.7, 0.8)) == []
    assert describe_bottleneck(waits(0.6, 0.7, 0.8)) == (
        "bottleneck: none in particular "
        "(rollout workers wait 60 %, policy workers wait 70 %, learner waits 80 %)"
    )


def test_a_run_whose_parts_are_equally_busy_has_no_bottleneck():
    assert "none in particular" in describe_bottleneck(waits(0.0, 0.01, 0.02))


@pytest.mark.parametrize("known", [{}, {"learner": 0.0}, {"learner": 0.0, "something_else": 0.0}])
def test_the_text_is_empty_before_two_parts_have_reported(known):
    assert describe_bottleneck(known) == ""


def test_without_a_learner_the_other_two_are_compared():
    shares = {"rollout_worker": 0.01, "policy_worker": 0.7}
    assert describe_bottleneck(shares) == "bottleneck: simulation (busy 99 %; policy workers wait 70 %)"
