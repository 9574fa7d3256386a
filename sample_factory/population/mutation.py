"""How population-based training changes numbers (Jaderberg et al. 2017, "explore"; Petrenko et al. 2020)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.population_flags import MAX_BATCH_GROWTH

RESET_CHANCE = 0.05  # that a number that is to change goes back to its default instead
NEAR_ONE_FACTORS = (1.01, 1.2)  # for what a number like a discount lacks to 1
TINY = 1e-8
BATCH_FACTOR = 1.2


class MutationRule(NamedTuple):
    """rate: the chance that a number changes. low, high: range of the factor by which it grows or shrinks.
    rollout, initial_batch_size: a batch has whole rollouts, and grows to 1.5 of its first size at most.
    """

    rate: float
    low: float
    high: float
    rollout: int
    initial_batch_size: int


def mutate(
    values: Mapping[str, Any], defaults: Mapping[str, Any], rule: MutationRule, rng: np.random.Generator
) -> dict[str, Any]:
    """A changed copy. Mappings and tuples in it change number by number; `defaults` has the same shape.

    gamma, batch_size and learning_rate, at the top, have rules of their own; all stay what the command line
    would take.
    """
    changed = {}
    for name, value in values.items():
        change = SPECIAL_RULES.get(name, _change)
        changed[name] = _mutate_value(value, defaults.get(name, value), change, rule, rng)
    return changed


def _mutate_value(value: Any, default: Any, change: Callable, rule: MutationRule, rng: Any) -> Any:
    if isinstance(value, Mapping):
        known = default if isinstance(default, Mapping) else {}
        parts = {name: (part, known.get(name, part)) for name, part in value.items()}
        return {name: _mutate_value(*pair, _change, rule, rng) for name, pair in parts.items()}
    if isinstance(value, (tuple, list)):
        defaults = default if isinstance(default, (tuple, list)) and len(default) == len(value) else value
        pairs = zip(value, defaults)
        return type(value)(_mutate_value(part, known, change, rule, rng) for part, known in pairs)
    if rng.random() >= rule.rate:
        return value
    if value != default and rng.random() < RESET_CHANCE:
        return default
    if isinstance(value, bool):
        return not value
    return change(value, rule, rng)


def _grow_or_shrink(value: float, factor: float, rng: Any) -> float:
    return value * factor if rng.random() < 0.5 else value / factor


def _change(value: float, rule: MutationRule, rng: Any) -> float:
    return _grow_or_shrink(value, rng.uniform(rule.low, rule.high), rng)


def _change_near_one(value: float, rule: MutationRule, rng: Any) -> float:
    """Of a discount 0.99, 0.01 is what matters."""
    lack = _grow_or_shrink(1.0 - value, rng.uniform(*NEAR_ONE_FACTORS), rng)
    return 1.0 - min(1.0, max(TINY, lack))


def _change_up_to_one(value: float, rule: MutationRule, rng: Any) -> float:
    return min(1.0, _change(value, rule, rng))


def fitting_batch(size: float, rule: MutationRule) -> int:
    """At most `size`, of whole rollouts, at least one, and no larger than memory is allotted for."""
    size = min(size, MAX_BATCH_GROWTH * rule.initial_batch_size)
    return max(rule.rollout, int(size) // rule.rollout * rule.rollout)


def _change_batch_size(value: int, rule: MutationRule, rng: Any) -> int:
    return fitting_batch(_grow_or_shrink(value, BATCH_FACTOR, rng), rule)


SPECIAL_RULES: Mapping[str, Callable] = {
    "gamma": _change_near_one,
    "batch_size": _change_batch_size,
    "learning_rate": _change_up_to_one,
}
