"""Schemes of shaping rewards, see `player_score.VariableShaping`: the built-in ones, and those of a flag."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.config.flags import ConfigError, shortened

NUM_SLOTS = 8  # of weapons
# Weight of the weapon of a slot, 1 for the others: shotguns, chaingun, rocket launcher, two energy weapons.
PREFERENCE = {3: 5, 4: 5, 5: 5, 6: 10, 7: 10}
NUMBER = r"[+-]?\d{0,9}\.?\d{1,9}(?:e-?\d)?"
WEIGHT = re.compile(rf"(\w+)=({NUMBER})(?:/({NUMBER}))?")
EXAMPLE = "HITCOUNT=200 DAMAGE_TAKEN=-10 HEALTH=1/-0.5"


def parse_shaping(weights: Sequence[str], flag: str = "doom_shaping") -> dict[str, Any] | None:
    """Parses --doom_shaping or --doom_cost; returns a scheme, {} for "none", or None if the flag is left out.

    weights: NAME=GAIN/LOSS, the rewards, or costs, for each unit by which a variable rises and by which it
        falls; with NAME=GAIN, LOSS is -GAIN. flag: for messages. Raises ConfigError for any other form.
    """
    if tuple(weights) in ((), ("none",)):
        return {} if weights else None
    delta: dict[str, dict[str, float]] = {}
    for text in weights:
        match = WEIGHT.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"--{flag}: {shortened(text)} is not NAME=NUMBER or NAME=GAIN/LOSS; separate several "
                f"by spaces, like --{flag} {EXAMPLE}"
            )
        name, gain, loss = match.groups()
        if name in delta:
            raise ConfigError(f"--{flag} names {name} twice")
        delta[name] = {"gain": float(gain), "loss": -float(gain) if loss is None else float(loss)}
    return {"delta": delta}


def _scheme(overrides: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Returns a scheme of `VariableShaping` that suits matches, with some weights replaced.
    overrides: variable -> (gain, loss)."""
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
# The engine rewards the kills; of the changes, only that of the health is paid, as in the paper.
BATTLE: Mapping[str, Any] = {**AGAINST_BOTS, "delta": {"HEALTH": AGAINST_BOTS["delta"]["HEALTH"]}}
