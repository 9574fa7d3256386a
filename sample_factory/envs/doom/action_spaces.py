"""Action spaces as groups of engine buttons, in the order in which a scenario's .cfg lists the buttons."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from sample_factory.spaces.actions import Discretized

# For each choice of a discrete group, the values of the group's buttons.
ButtonTable = list[list[float]]


class Press(NamedTuple):
    """One of `num_choices`: 0 presses nothing, k presses button k of the group."""

    num_choices: int

    def space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(self.num_choices)

    def num_buttons(self) -> int:
        return self.num_choices - 1

    def table(self) -> ButtonTable:
        """Returns the values of the buttons for each choice."""
        table: ButtonTable = np.eye(self.num_choices)[:, 1:].tolist()
        return table


class Turn(NamedTuple):
    """One of `num_choices` equally spaced values, in degrees per tic, for one delta button."""

    num_choices: int
    low: float
    high: float

    def space(self) -> Discretized:
        return Discretized(self.num_choices, self.low, self.high)

    def num_buttons(self) -> int:
        return 1

    def table(self) -> ButtonTable:
        """Returns the value of the button for each choice."""
        table: ButtonTable = self.space().values[:, None].tolist()
        return table


class ContinuousTurn(NamedTuple):
    """A number in [-1, 1], times `scale` degrees per tic, for one delta button."""

    scale: float = 7.5

    def space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def num_buttons(self) -> int:
        return 1


ActionGroups = tuple[Press | Turn | ContinuousTurn, ...]

TURN_AND_ATTACK: ActionGroups = (Press(3), Press(2))
BASIC: ActionGroups = (Press(3), Press(3))
EXTENDED: ActionGroups = (Press(3), Press(3), Press(3), Press(2))
# move, strafe, next or previous weapon, attack, sprint, turn
HYBRID: ActionGroups = (Press(3), Press(3), Press(3), Press(2), Press(2), ContinuousTurn())
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
    """Number of engine buttons that the groups control together."""
    return sum(group.num_buttons() for group in groups)


def action_space(groups: ActionGroups) -> gymnasium.Space[Any]:
    """Returns the space of a single group, or a Tuple of the groups' spaces."""
    spaces = [group.space() for group in groups]
    return spaces[0] if len(spaces) == 1 else gymnasium.spaces.Tuple(spaces)


class ButtonMap:
    """Converts an action into the list of button values that the engine expects.

    An action is an integer for a single group, otherwise a sequence or array with one number per group.
    Integers may be given as floats.
    """

    def __init__(self, groups: ActionGroups):
        self._is_single = len(groups) == 1
        # A continuous group has its scale instead of a table.
        self._groups: list[ButtonTable | float] = [
            group.scale if isinstance(group, ContinuousTurn) else group.table() for group in groups
        ]
        self._tables = [group for group in self._groups if isinstance(group, list)]
        self._is_discrete = len(self._tables) == len(self._groups)

    def button_values(self, action: Any) -> list[float]:
        """Returns one float per button, group by group.

        Raises IndexError for a choice beyond its group, ValueError for an action of the wrong length.
        """
        if self._is_single:
            return _group_values(self._groups[0], action)
        values: Sequence[Any] = action.tolist() if isinstance(action, np.ndarray) else action
        if self._is_discrete:  # equals the loop below, in a third less time
            return [
                button
                for table, choice in zip(self._tables, values, strict=True)
                for button in table[int(choice)]
            ]
        buttons: list[float] = []
        for group, value in zip(self._groups, values, strict=True):
            buttons += _group_values(group, value)
        return buttons


def _group_values(group: ButtonTable | float, value: Any) -> list[float]:
    if isinstance(group, list):
        return group[int(value)]
    # In an action of a Gymnasium Tuple the number is an array of one element.
    number = float(np.asarray(value).item())
    return [min(max(number, -1.0), 1.0) * group]
