"""Action spaces as groups of engine buttons, in the order in which a scenario's .cfg lists the buttons."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.spaces.actions import Discretized

# A group is the space of its choice. Press(n): 0 presses nothing, k presses button k of the group.
Press = spaces.Discrete
# Turn(n, low, high): one of n equally spaced values, in degrees per tic, for one delta button.
Turn = Discretized
# A number in [-1, 1] for one delta button, times DEGREES degrees per tic.
CONTINUOUS_TURN = spaces.Box(-1.0, 1.0, (1,), np.float32)
DEGREES = 7.5

ActionGroups = tuple[spaces.Discrete | spaces.Box, ...]
# The values of a group's buttons for each choice.
ButtonTable = list[list[float]]

TURN_AND_ATTACK: ActionGroups = (Press(3), Press(2))
BASIC: ActionGroups = (Press(3), Press(3))
EXTENDED: ActionGroups = (Press(3), Press(3), Press(3), Press(2))
# move, strafe, next or previous weapon, attack, sprint, turn
HYBRID: ActionGroups = (Press(3), Press(3), Press(3), Press(2), Press(2), CONTINUOUS_TURN)
# move, strafe, attack, sprint, turn
DISCRETIZED_NO_WEAPON: ActionGroups = (Press(3), Press(3), Press(2), Press(2), Turn(11, -10.0, 10.0))
# move, strafe, weapon, attack, sprint, turn
FULL: ActionGroups = (Press(3), Press(3), Press(8), Press(2), Press(2), Turn(21, -12.5, 12.5))
# FULL with use (of doors and switches) before the turn
FULL_WITH_USE: ActionGroups = (*FULL[:5], Press(2), FULL[5])


def flat(num_choices: int) -> ActionGroups:
    """Returns the groups of a single Discrete action: nothing, or one button at a time."""
    return (Press(num_choices),)


def num_buttons(groups: ActionGroups) -> int:
    """Returns the number of engine buttons that the groups control together."""
    return sum(1 if table is None else len(table[0]) for table in map(_button_table, groups))


def action_space(groups: ActionGroups) -> spaces.Space[Any]:
    """Returns a new space: that of a single group, or a Tuple."""
    copies = copy.deepcopy(groups)  # an env may seed its space
    return copies[0] if len(copies) == 1 else spaces.Tuple(copies)


class ButtonMap:
    """Converts an action into the list of button values that the engine expects.

    An action is an integer for a single group, otherwise a sequence or array with one number per group.
    Integers may be given as floats.
    """

    def __init__(self, groups: ActionGroups):
        self._is_single = len(groups) == 1
        self._tables = [_button_table(group) for group in groups]
        self._discrete_tables = [table for table in self._tables if table is not None]
        self._is_discrete = len(self._discrete_tables) == len(groups)

    def button_values(self, action: Any) -> list[float]:
        """Returns one float per button, group by group.

        Raises IndexError for a choice beyond its group, ValueError for an action of the wrong length.
        """
        if self._is_single:
            return _group_values(self._tables[0], action)
        values: Sequence[Any] = action.tolist() if isinstance(action, np.ndarray) else action
        if self._is_discrete:  # equals the loop below, in a third less time
            return [
                button
                for table, choice in zip(self._discrete_tables, values, strict=True)
                for button in table[int(choice)]
            ]
        buttons: list[float] = []
        for table, value in zip(self._tables, values, strict=True):
            buttons += _group_values(table, value)
        return buttons


def _button_table(group: spaces.Discrete | spaces.Box) -> ButtonTable | None:
    """Returns the table of a group; None for a continuous turn."""
    if isinstance(group, spaces.Box):
        return None
    rows = group.values[:, None] if isinstance(group, Discretized) else np.eye(int(group.n))[:, 1:]
    table: ButtonTable = rows.tolist()
    return table


def _group_values(table: ButtonTable | None, value: Any) -> list[float]:
    if table is not None:
        return table[int(value)]
    # In an action of a Gymnasium Tuple the number is an array of one element.
    number = float(np.asarray(value).item())
    return [min(max(number, -1.0), 1.0) * DEGREES]
