"""How population-based training changes numbers (Jaderberg et al. 2017, "explore"; Petrenko et al. 2020)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.population_flags import MAX_BATCH_GROWTH

RESET_CHANCE = 0.05  # probability that a number is reset to its default instead of being changed
NEAR_ONE_FACTORS = (1.01, 1.2)  # range of the factor by which 1 - gamma changes
TINY = 1e-8
BATCH_FACTOR = 1.2


class MutationRule(NamedTuple):
    """How numbers change.

    rate: probability that a number changes.
    low, high: range of the factor by which it is multiplied or divided.
    rollout, initial_batch_size: a batch consists of whole rollouts, and of at most MAX_BATCH_GROWTH times its
        first size.
    """

    rate: float
    low: float
    high: float
    rollout: int
    initial_batch_size: int


Change = Callable[[Any, MutationRule, np.random.Generator], Any]


def mutate(
    values: Mapping[str, Any], defaults: Mapping[str, Any], rule: MutationRule, rng: np.random.Generator
) -> dict[str, Any]:
    """Returns a changed copy. Each number in nested mappings and tuples changes on its own.

    defaults: of the same shape. At the top level, gamma, batch_size and learning_rate have their own rules,
    which keep them within the bounds of their flags.
    """
    changed = {}
    for name, value in values.items():
        change = SPECIAL_RULES.get(name, _change)
        changed[name] = _mutate_value(value, defaults.get(name, value), change, rule, rng)
    return changed


def _mutate_value(
    value: Any, default: Any, change: Change, rule: MutationRule, rng: np.random.Generator
) -> Any:
    if isinstance(value, Mapping):
        known = default if isinstance(default, Mapping) else {}
        return {
            name: _mutate_value(item, known.get(name, item), _change, rule, rng)
            for name, item in value.items()
        }
    if isinstance(value, (tuple, list)):
        defaults = default if isinstance(default, (tuple, list)) and len(default) == len(value) else value
        pairs = zip(value, defaults)
        return type(value)(_mutate_value(item, known, change, rule, rng) for item, known in pairs)
    if rng.random() >= rule.rate:
        return value
    if value != default and rng.random() < RESET_CHANCE:
        return default
    if isinstance(value, bool):
        return not value
    return change(value, rule, rng)


def _grow_or_shrink(value: float, factor: float, rng: np.random.Generator) -> float:
    return value * factor if rng.random() < 0.5 else value / factor


def _change(value: float, rule: MutationRule, rng: np.random.Generator) -> float:
    return _grow_or_shrink(value, rng.uniform(rule.low, rule.high), rng)


def _change_near_one(value: float, rule: MutationRule, rng: np.random.Generator) -> float:
    """Changes 1 - value: for a discount factor of 0.99, 0.01 determines the horizon."""
    difference = _grow_or_shrink(1.0 - value, rng.uniform(*NEAR_ONE_FACTORS), rng)
    return 1.0 - min(1.0, max(TINY, difference))


def _change_up_to_one(value: float, rule: MutationRule, rng: np.random.Generator) -> float:
    return min(1.0, _change(value, rule, rng))


def fitting_batch(size: float, rule: MutationRule) -> int:
    """Returns the largest batch size up to `size` that has whole rollouts and fits in the allotted memory."""
    size = min(size, MAX_BATCH_GROWTH * rule.initial_batch_size)
    return max(rule.rollout, int(size) // rule.rollout * rule.rollout)


def _change_batch_size(value: int, rule: MutationRule, rng: np.random.Generator) -> int:
    return fitting_batch(_grow_or_shrink(value, BATCH_FACTOR, rng), rule)


SPECIAL_RULES: Mapping[str, Change] = {
    "gamma": _change_near_one,
    "batch_size": _change_batch_size,
    "learning_rate": _change_up_to_one,
}
