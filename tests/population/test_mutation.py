import numpy as np
import pytest

from sample_factory.config.population_flags import PbtFlags
from sample_factory.population.pbt import Mutation

TRIALS = 300


def mutations(values, defaults=None, rate=1.0):
    flags = PbtFlags(pbt_mutation_rate=rate, pbt_perturb_min=1.1, pbt_perturb_max=1.5)
    mutation = Mutation(flags, rollout=32, batch_size=1024, rng=np.random.default_rng(0))
    return [mutation.mutated(values, defaults or values) for _ in range(TRIALS)]


def factors(name, value, of=lambda x: x):
    """Returns the factor, above 1, by which a value grows or shrinks."""
    ratios = [of(changed[name]) / of(value) for changed in mutations({name: value})]
    assert min(ratios) < 1 < max(ratios), "both directions"
    return [max(ratio, 1 / ratio) for ratio in ratios]


def test_a_number_grows_or_shrinks_by_a_factor_of_the_range():
    found = factors("learning_rate", 1e-4)
    assert min(found) >= 1.1 and max(found) <= 1.5 and max(found) - min(found) > 0.3


def test_a_discount_factor_changes_by_its_difference_to_one():
    found = factors("gamma", 0.99, of=lambda x: 1 - x)
    assert min(found) >= 1.009 and max(found) <= 1.201
    assert all(changed["gamma"] < 1 for changed in mutations({"gamma": 1.0}))


@pytest.mark.parametrize("name", ["gamma", "learning_rate"])
@pytest.mark.parametrize("extreme", [0.0, 1e-9, 0.95, 1.0])
def test_mutations_stay_within_the_bounds_of_the_flags(name, extreme):
    assert all(0 <= changed[name] <= 1 for changed in mutations({name: extreme}))


def test_a_name_within_the_shaping_has_no_rule_of_its_own():
    assert all(changed["delta"]["gamma"] != 0.5 for changed in mutations({"delta": {"gamma": 0.5}}))
    assert max(changed["delta"]["gamma"] for changed in mutations({"delta": {"gamma": 0.5}})) > 0.55


def test_a_batch_stays_a_number_of_whole_rollouts_and_below_one_and_a_half_of_the_first():
    sizes = {changed["batch_size"] for changed in mutations({"batch_size": 1024})}
    assert sizes == {832, 1216}
    assert {changed["batch_size"] for changed in mutations({"batch_size": 1504})} == {1248, 1536}
    assert {changed["batch_size"] for changed in mutations({"batch_size": 32})} == {32}


def test_a_switch_is_flipped():
    assert all(changed == {"normalize_returns": False} for changed in mutations({"normalize_returns": True}))


def test_the_mutation_rate_is_the_share_of_numbers_that_change():
    values = {f"number_{i}": 1.0 for i in range(100)}
    changed = [sum(new != 1.0 for new in found.values()) for found in mutations(values, rate=0.15)]
    assert np.mean(changed) == pytest.approx(15, abs=1)


def test_some_numbers_are_reset_to_their_default():
    back = [found["gamma"] == 0.9 for found in mutations({"gamma": 0.99}, {"gamma": 0.9})]
    assert 0.02 < np.mean(back) < 0.1


def test_nested_settings_change_number_by_number_and_keep_their_form():
    scheme = {"delta": {"FRAGCOUNT": (1.0, -1.5), "HEALTH": [0.01, -0.01]}}
    found = mutations(scheme)[0]["delta"]
    assert isinstance(found["FRAGCOUNT"], tuple) and isinstance(found["HEALTH"], list)
    before, after = (1.0, -1.5, 0.01, -0.01), (*found["FRAGCOUNT"], *found["HEALTH"])
    assert all(old != new and old * new > 0 for old, new in zip(before, after)), "and their signs"
    assert scheme == {"delta": {"FRAGCOUNT": (1.0, -1.5), "HEALTH": [0.01, -0.01]}}, (
        "the original is untouched"
    )
