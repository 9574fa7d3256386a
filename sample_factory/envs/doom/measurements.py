"""The vector of numbers that some envs show to the policy besides the picture."""

from typing import Mapping, NamedTuple

import numpy as np


class Measurement(NamedTuple):
    """clip(variable * scale, low, high), or `default` * scale where the engine does not report the variable."""

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
    """Computes the vector from the engine's array of variables, whose places `variables` tells."""

    def __init__(self, variables: Mapping[str, int]):
        self._places = np.array([variables.get(m.variable, 0) for m in MEASUREMENTS])
        is_known = np.array([m.variable in variables for m in MEASUREMENTS])
        scales = np.array([m.scale for m in MEASUREMENTS])
        self._scales = np.where(is_known, scales, 0.0)
        self._offsets = np.where(is_known, 0.0, scales * [m.default for m in MEASUREMENTS])
        self._lows = np.array([m.low for m in MEASUREMENTS])
        self._highs = np.array([m.high for m in MEASUREMENTS])

    def write(self, values: np.ndarray, into: np.ndarray) -> None:
        """values: [num_variables] float64 as the engine gives them. into: [23] float32."""
        vector = values[self._places]
        vector *= self._scales
        vector += self._offsets
        np.maximum(vector, self._lows, out=vector)
        np.minimum(vector, self._highs, out=into, casting="same_kind")
