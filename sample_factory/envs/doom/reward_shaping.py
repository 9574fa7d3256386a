"""Reward shaping by the changes of game variables.

A scheme is a nested dict of floats, which population-based training may change:
`{"delta": {variable: {"gain": w, "loss": w}}, "selected_weapon": {"SELECTED<slot>": bonus}}`. If a variable
rises by d, the reward is d * gain; if it falls by d, d * loss. The bonus is paid for each step with a loaded
weapon of that slot in hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

NUM_SLOTS = 8
# Weight of the weapon of a slot, 1 for the others: shotguns, chaingun, rocket launcher, two energy weapons.
PREFERENCE = {3: 5, 4: 5, 5: 5, 6: 10, 7: 10}
# Larger changes are clipped: a rocket into a crowd must not outweigh a frag, and a player crushed by another
# one's respawn loses a million points of health.
MAX_CHANGE = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0, "HEALTH": 200.0}
# A weapon held for fewer readings is skipped while the player cycles through the slots.
MIN_READINGS_OF_SELECTED = 5


def _scheme(overrides: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Returns the default scheme with some weights replaced; overrides: (gain, loss) by variable."""
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
    """Computes the shaping reward of one player during one episode.

    variables: maps the names of the engine's variables to their places in the lists of values. Variables that
        the engine does not report are not shaped.
    The first step of the episode and of each new life has no shaping reward.
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
        self._previous: Sequence[float] | None = None
        self._num_readings = 0  # of the weapon now in hand, in a row

    def step(self, values: Sequence[float]) -> float:
        """Returns the reward for the change since the last step.

        `values` is kept until the next step: pass a new list each time.
        """
        previous = self._previous
        self._previous = values
        if self._selected is not None:
            is_same = previous is not None and previous[self._selected] == values[self._selected]
            self._num_readings = self._num_readings + 1 if is_same else 1
        if previous is None:
            return 0.0
        if self._dead is not None and previous[self._dead] > 0 and values[self._dead] == 0:  # has respawned
            return 0.0
        reward = self._selected_bonus(values)
        for place, gain, loss, max_change in self._weights:
            change = values[place] - previous[place]
            if change > 0:
                reward += gain * min(change, max_change)
            elif change < 0:
                reward += loss * min(-change, max_change)
        return reward

    def _selected_bonus(self, values: Sequence[float]) -> float:
        if self._selected is None or self._ammo is None or values[self._ammo] <= 0:
            return 0.0
        slot = int(values[self._selected])
        is_counted = self._num_readings >= MIN_READINGS_OF_SELECTED and 0 <= slot < NUM_SLOTS
        return self._bonus[slot] if is_counted else 0.0
