"""The keys of the engine with which a human presses a scenario's buttons."""

from collections.abc import Sequence
from typing import NamedTuple


class Keys(NamedTuple):
    """Keys that have one purpose. buttons: the engine's, each pressed by one of the keys."""

    keys: str
    purpose: str
    buttons: tuple[str, ...]


# Defaults of the engine (defbinds.txt in vizdoom.pk3).
KEYS = (
    Keys("up, down", "move forward, backward", ("MOVE_FORWARD", "MOVE_BACKWARD")),
    Keys(", .", "step left, right", ("MOVE_LEFT", "MOVE_RIGHT")),
    Keys("left, right", "turn", ("TURN_LEFT", "TURN_RIGHT")),
    Keys("mouse, left, right", "turn", ("TURN_LEFT_RIGHT_DELTA",)),
    Keys("Ctrl, left button", "shoot", ("ATTACK",)),
    Keys("Shift", "run", ("SPEED",)),
    Keys("Space", "open doors, press switches", ("USE",)),
    Keys("1 to 7", "choose a weapon", tuple(f"SELECT_WEAPON{number}" for number in range(1, 8))),
    Keys("mouse wheel", "next, previous weapon", ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON")),
)


def keys_for(buttons: Sequence[str]) -> list[Keys]:
    """Returns the keys for the buttons of a scenario."""
    return [keys for keys in KEYS if not set(buttons).isdisjoint(keys.buttons)]
