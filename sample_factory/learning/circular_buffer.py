"""Batches that are trained on several times (IMPACT, Luo et al. 2020, section 3.2)."""

from collections import deque

from sample_factory.learning.batch import Batch


class CircularBuffer:
    """Keeps up to N batches on the device, so that each is used K times.

    A batch is used when it arrives, and K - 1 times more, evenly spread over the N - 1 batches that follow.
    In the paper, a learner draws from the buffer whenever it has nothing new; here each batch is used exactly
    K times, whatever the speeds of sampling and learning are. Nothing is kept with K = 1.
    """

    def __init__(self, num_batches: int, num_uses: int):
        """num_batches: N. num_uses: K."""
        later = range(num_uses - 1, 0, -1)
        self._ages = [round(use * (num_batches - 1) / (num_uses - 1)) for use in later]  # in batches
        self._batches: deque[Batch] = deque(maxlen=max(self._ages, default=-1) + 1)  # the newest one first

    def add(self, batch: Batch) -> list[Batch]:
        """Adds a new batch. Returns the batches to train on before it, the oldest one first."""
        self._batches.appendleft(batch)
        return [self._batches[age] for age in self._ages if age < len(self._batches)]
