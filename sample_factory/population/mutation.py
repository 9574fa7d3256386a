"""Random changes of settings in population-based training (Jaderberg et al. 2017, "explore"; Petrenko et al.
2020)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sample_factory.config.population_flags import MAX_BATCH_GROWTH, PbtFlags

RESET_CHANCE = 0.05  # probability that a changed number is reset to its default instead of being mutated
NEAR_ONE_FACTORS = (1.01, 1.2)  # range of the factor by which 1 - gamma changes
TINY = 1e-8
BATCH_FACTOR = 1.2


class Mutation:
    """Mutates settings. A number changes with a probability of --pbt_mutation_rate: it is multiplied or
    divided by a factor between --pbt_perturb_min and --pbt_perturb_max."""

    def __init__(self, flags: PbtFlags, rollout: int, batch_size: int, rng: np.random.Generator):
        """batch_size: of the command line."""
        self._flags = flags
        self._rollout = rollout
        self._max_batch = MAX_BATCH_GROWTH * batch_size
        self._rng = rng
        # These keep the values within the bounds of their flags.
        self._special: Mapping[str, Callable[[Any], Any]] = {
            "gamma": self._mutate_near_one,
            "batch_size": lambda value: self.fitting_batch(self._scaled(value, BATCH_FACTOR)),
            "learning_rate": lambda value: min(1.0, self._mutate_number(value)),
        }

    def mutated(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a mutated copy. Each number in nested mappings and tuples changes on its own.

        defaults: of the same form as `values`.
        """
        return {
            name: self._mutate(value, defaults.get(name, value), self._special.get(name, self._mutate_number))
            for name, value in values.items()
        }

    def fitting_batch(self, size: float) -> int:
        """Returns the largest batch size up to `size` that has whole rollouts and fits the buffers."""
        whole_rollouts = int(min(size, self._max_batch)) // self._rollout
        return max(1, whole_rollouts) * self._rollout

    def _mutate(self, value: Any, default: Any, mutate_number: Callable[[Any], Any]) -> Any:
        if isinstance(value, Mapping):
            known = default if isinstance(default, Mapping) else {}
            return {
                name: self._mutate(item, known.get(name, item), self._mutate_number)
                for name, item in value.items()
            }
        if isinstance(value, (tuple, list)):
            fits = isinstance(default, (tuple, list)) and len(default) == len(value)
            pairs = zip(value, default if fits else value)
            return type(value)(self._mutate(item, known, mutate_number) for item, known in pairs)
        if self._rng.random() >= self._flags.pbt_mutation_rate:
            return value
        if value != default and self._rng.random() < RESET_CHANCE:
            return default
        return not value if isinstance(value, bool) else mutate_number(value)

    def _mutate_number(self, value: float) -> float:
        factor = self._rng.uniform(self._flags.pbt_perturb_min, self._flags.pbt_perturb_max)
        return self._scaled(value, factor)

    def _mutate_near_one(self, value: float) -> float:
        """Mutates 1 - value: a discount factor of 0.99 has a horizon of 1 / 0.01 steps."""
        difference = self._scaled(1.0 - value, self._rng.uniform(*NEAR_ONE_FACTORS))
        return 1.0 - min(1.0, max(TINY, difference))

    def _scaled(self, value: float, factor: float) -> float:
        """Multiplies or divides by the factor, with equal probability."""
        return value * factor if self._rng.random() < 0.5 else value / factor
