"""Mean and standard deviation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """Over episodes or matches; nan when there were none."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} +- {self.std:.3f}"


def spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(float("nan"), float("nan"))
    return Spread(float(np.mean(values)), float(np.std(values)))
