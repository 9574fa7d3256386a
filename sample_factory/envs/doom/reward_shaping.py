"""Reward shaping by the changes of game variables.

A scheme is a nested dict of floats, which population-based training may change:
`{"delta": {variable: {"gain": w, "loss": w}}, "selected_weapon": {"SELECTED<slot>": bonus}}`. A rise of a
variable by d is worth d * gain, a fall by d is worth d * loss; the bonus is paid for each step with a loaded
weapon of that slot in hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

NUM_SLOTS = 8
# How much the weapon of a slot is preferred: the shotguns, chaingun and rockets, most the energy weapons.
PREFERENCE = {3: 5, 4: 5, 5: 5, 6: 10, 7: 10}
# A larger change counts as this one: a rocket into a crowd must not outweigh a frag. A player who is crushed
# by another's arrival loses a million points of health.
MAX_CHANGE = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0, "HEALTH": 200.0}
# A weapon in hand for fewer readings is one that the player is only passing by.
MIN_READINGS_OF_SELECTED = 5


def _scheme(overrides: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    weights = {
        "FRAGCOUNT": (1.0, -1.5),
        "DEATHCOUNT": (-0.75, 0.75),
        "HITCOUNT": (0.01, -0.01),
        "DAMAGECOUNT": (0.003, -0.003),
        "HEALTH": (0.005, -0.003),
        "ARMOR": (0.005, -0.001),
    }
    weights.update(overrides)
    selected = {}
    for slot in range(NUM_SLOTS):
        preference = PREFERENCE.get(slot, 1)
        weights[f"WEAPON{slot}"] = (0.02 * preference, -0.01 * preference)
        weights[f"AMMO{slot}"] = (0.0002 * preference, -0.0001 * preference)
        selected[f"SELECTED{slot}"] = 0.0002 * preference
    delta = {name: {"gain": gain, "loss": loss} for name, (gain, loss) in weights.items()}
    return {"delta": delta, "selected_weapon": selected}


AGAINST_BOTS = _scheme({})
SELF_PLAY = _scheme(
    {
        "FRAGCOUNT": (1.0, -0.001),
        "DEATHCOUNT": (-1.0, 1.0),
        "HITCOUNT": (0.0, 0.0),
        "DAMAGECOUNT": (0.01, -0.01),
        "HEALTH": (0.01, -0.01),
    }
)


class VariableShaping:
    """The shaping reward of one player.

    `variables` maps the names of the engine's variables to their places in `values`; what the engine does not
    report is not shaped. Nothing is paid for the first step of an episode and of a new life.
    """

    def __init__(self, scheme: Mapping[str, Any], variables: Mapping[str, int]):
        self._weights = [
            (variables[name], weight["gain"], weight["loss"], MAX_CHANGE.get(name, float("inf")))
            for name, weight in scheme["delta"].items()
            if name in variables
        ]
        self._bonus = [scheme["selected_weapon"].get(f"SELECTED{slot}", 0.0) for slot in range(NUM_SLOTS)]
        self._selected = variables.get("SELECTED_WEAPON")
        self._ammo = variables.get("SELECTED_WEAPON_AMMO")
        self._dead = variables.get("DEAD")
        self.start()

    def start(self) -> None:
        """Forgets the last episode."""
        self._previous: Sequence[float] | None = None
        self._num_readings = 0

    def step(self, values: Sequence[float]) -> float:
        """Reward for the change since the last step. `values` is kept: pass a new list each time."""
        previous, self._previous = self._previous, values
        self._count_readings(previous, values)
        if previous is None or self._has_respawned(previous, values):
            return 0.0
        reward = self._selected_bonus(values)
        for index, gain, loss, max_change in self._weights:
            change = values[index] - previous[index]
            if change > 0:
                reward += gain * min(change, max_change)
            elif change < 0:
                reward += loss * min(-change, max_change)
        return reward

    def _has_respawned(self, previous: Sequence[float], values: Sequence[float]) -> bool:
        return self._dead is not None and previous[self._dead] > 0 and values[self._dead] == 0

    def _count_readings(self, previous: Sequence[float] | None, values: Sequence[float]) -> None:
        if self._selected is None:
            return
        is_same = previous is not None and previous[self._selected] == values[self._selected]
        self._num_readings = self._num_readings + 1 if is_same else 1

    def _selected_bonus(self, values: Sequence[float]) -> float:
        if self._ammo is None or values[self._ammo] <= 0 or self._num_readings < MIN_READINGS_OF_SELECTED:
            return 0.0
        slot = int(values[self._selected])
        return self._bonus[slot] if 0 <= slot < NUM_SLOTS else 0.0
