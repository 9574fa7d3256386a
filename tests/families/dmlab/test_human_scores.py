"""Scores of DMLab-30 in relation to those of people."""

import pytest

from sample_factory.families.dmlab.levels import DMLAB_30, HumanScores, human_normalized


def score_of(name: str, percent: float) -> float:
    human, random = DMLAB_30[name]
    return random + (human - random) * percent / 100


def end_all(scores: HumanScores, percents: list[float]) -> list[dict[str, float]]:
    """Ends an episode of each level; returns what each of them reports."""
    return [
        dict(scores.add({f"z_{i:02d}_{name}_dmlab_raw_score": score_of(name, percent), "other": 1}))
        for i, (name, percent) in enumerate(zip(DMLAB_30, percents))
    ]


def test_0_is_a_random_policy_and_100_are_people():
    assert human_normalized("rooms_watermaze", 4.065) == 0
    assert human_normalized("rooms_watermaze", 54) == 100


def test_they_are_reported_when_every_level_has_ended_an_episode():
    scores = HumanScores("dmlab_30")
    scores.add(
        {"z_01_rooms_exploit_deferred_effects_train_dmlab_raw_score": score_of(list(DMLAB_30)[1], 250)}
    )
    *others, last = end_all(scores, [50, 150] * 15)
    assert not any(others)
    # Level 1 has two episodes, of 250 and 150 percent.
    assert last["_dmlab/01_rooms_exploit_deferred_effects_train_human_norm_score"] == pytest.approx(200)
    assert last["_dmlab/capped_01_rooms_exploit_deferred_effects_train_human_norm_score"] == 100
    assert last["_dmlab/00_rooms_collect_good_objects_train_human_norm_score"] == pytest.approx(50)
    assert last["_dmlab/000_mean_human_norm_score"] == pytest.approx((15 * 50 + 14 * 150 + 200) / 30)
    assert last["_dmlab/000_capped_mean_human_norm_score"] == pytest.approx(75)
    assert last["dmlab_target_objective"] == pytest.approx(75)
    assert len(last) == 63
    *others, last = end_all(scores, [0] * 30)
    assert not any(others) and last["dmlab_target_objective"] == pytest.approx(0), "it begins again"


def test_the_scores_of_replaced_weights_are_discarded():
    scores = HumanScores("dmlab_30")
    end_all(scores, [0] * 29)
    scores.clear()
    assert end_all(scores, [100] * 30)[-1]["dmlab_target_objective"] == pytest.approx(100)


def test_an_env_of_one_level_reports_its_score_only():
    scores = HumanScores("dmlab_rooms_watermaze")
    assert scores.add({"z_00_rooms_watermaze_dmlab_raw_score": 54}) == {}
