"""The vector of numbers that some envs show to the policy besides the picture."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Measurement(NamedTuple):
    """clip(variable * scale, low, high), or `default` * scale for a variable that is not reported."""

    variable: str
    scale: float
    low: float = -np.inf
    high: float = np.inf
    default: float = 0.0


def _ammo(variable: str) -> Measurement:
    return Measurement(variable, 1 / 15, high=5.0)


MEASUREMENTS = (
    Measurement("SELECTED_WEAPON", 1.0, low=0.0),
    _ammo("SELECTED_WEAPON_AMMO"),
    Measurement("HEALTH", 1 / 30, low=0.0),
    Measurement("ARMOR", 1 / 30),
    Measurement("USER2", 1 / 10),  # the number of kills in the battle scenarios
    Measurement("ATTACK_READY", 1.0),
    Measurement("PLAYER_COUNT", 1 / 5, default=1.0),
    *(Measurement(f"WEAPON{slot}", 1.0, low=0.0) for slot in range(8)),
    *(_ammo(f"AMMO{slot}") for slot in range(8)),
)
NUM_MEASUREMENTS = len(MEASUREMENTS)


class MeasurementReader:
    """Computes the vector from the engine's variables, whose places `variables` tells."""

    def __init__(self, variables: Mapping[str, int]):
        self._vector = [m.scale * m.default for m in MEASUREMENTS]
        # A loop over the variables that there are (4 in battle) costs less than five NumPy calls.
        self._known = [
            (index, variables[m.variable], m)
            for index, m in enumerate(MEASUREMENTS)
            if m.variable in variables
        ]

    def write(self, values: Sequence[float], into: np.ndarray) -> None:
        """values: the engine's variables. into: [23] float32."""
        vector = self._vector
        for index, place, (_, scale, low, high, _) in self._known:
            value = values[place] * scale
            vector[index] = low if value < low else high if value > high else value
        into[:] = vector
