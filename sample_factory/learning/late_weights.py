"""Forced policy lag: the weights that act are a given number of SGD steps older than the learner's."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.policy_weights import Stamp


class Weights(NamedTuple):
    """A model's state as arrays by name, and its stamp."""

    state: Mapping[str, np.ndarray]
    stamp: Stamp


class LateWeights:
    """Holds weights back until the learner has made `lag` more SGD steps; with 0, holds nothing."""

    def __init__(self, lag: int):
        self._lag = lag
        self._held: deque[Weights] = deque()  # those that act first

    def newest_to_act(self, learned: Weights) -> Weights:
        """Returns the newest weights that are at least `lag` SGD steps old; while there are none, the oldest.

        learned: those of the learner now. To be called after each iteration of training.
        """
        if self._lag == 0:
            return learned
        if self._held and self._held[0].stamp.generation != learned.stamp.generation:
            self._held.clear()  # samples of a former generation are not trained on
        state = {name: array.copy() for name, array in learned.state.items()}
        self._held.append(Weights(state, learned.stamp))
        while len(self._held) > 1 and self._held[1].stamp.version <= learned.stamp.version - self._lag:
            self._held.popleft()
        return self._held[0]
