"""Action spaces as groups of engine buttons, in the order in which a scenario's .cfg lists the buttons."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from sample_factory.spaces.actions import Discretized


class Press(NamedTuple):
    """Choose one of `num_choices`: 0 presses nothing, k presses button k of the group."""

    num_choices: int

    def space(self) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(self.num_choices)

    def num_buttons(self) -> int:
        return self.num_choices - 1

    def button_values(self) -> list[list[float]]:
        """For every choice the values of the group's buttons."""
        return np.eye(self.num_choices)[:, 1:].tolist()


class Turn(NamedTuple):
    """Choose one of `num_choices` equally spaced values, degrees per tic, for one delta button."""

    num_choices: int
    low: float
    high: float

    def space(self) -> Discretized:
        return Discretized(self.num_choices, self.low, self.high)

    def num_buttons(self) -> int:
        return 1

    def button_values(self) -> list[list[float]]:
        """For every choice the value of the button."""
        return self.space().values[:, None].tolist()


class ContinuousTurn(NamedTuple):
    """A number in [-1, 1], times `scale` degrees per tic, for one delta button."""

    scale: float = 7.5

    def space(self) -> gymnasium.Space:
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
# the same with use (of doors and switches) before the turn
FULL_WITH_USE: ActionGroups = (*FULL[:5], Press(2), FULL[5])


def flat(num_choices: int) -> ActionGroups:
    """One Discrete action: nothing, or one button at a time."""
    return (Press(num_choices),)


def num_buttons(groups: ActionGroups) -> int:
    """How many engine buttons the groups control together."""
    return sum(group.num_buttons() for group in groups)


def action_space(groups: ActionGroups) -> gymnasium.Space:
    """The space of a single group, or a Tuple of the groups' spaces."""
    spaces = [group.space() for group in groups]
    return spaces[0] if len(spaces) == 1 else gymnasium.spaces.Tuple(spaces)


class ActionDecoder:
    """Turns an action into the list of button values that the engine takes.

    An action is an integer for a single group, otherwise a sequence or array with one number per group;
    integers may come as floats.
    """

    def __init__(self, groups: ActionGroups):
        self._is_single = len(groups) == 1
        # The hot path is a table look-up for each group; a continuous group has its scale instead.
        self._tables = [
            group.scale if isinstance(group, ContinuousTurn) else group.button_values() for group in groups
        ]
        self._is_discrete = all(isinstance(table, list) for table in self._tables)

    def decode(self, action: Any) -> list[float]:
        """Button values, one float per button, group by group. Raises IndexError beyond a group."""
        if self._is_single:
            return self._group_values(self._tables[0], action)
        values: Sequence[Any] = action.tolist() if isinstance(action, np.ndarray) else action
        if self._is_discrete:  # the same as below, in a third less time
            return [
                button
                for table, choice in zip(self._tables, values, strict=True)
                for button in table[int(choice)]
            ]
        buttons: list[float] = []
        for table, value in zip(self._tables, values, strict=True):
            buttons += self._group_values(table, value)
        return buttons

    def _group_values(self, table: Any, value: Any) -> list[float]:
        if isinstance(table, list):
            return table[int(value)]
        # From a Gymnasium Tuple the number comes as an array of one.
        number = float(np.asarray(value).item())
        return [min(max(number, -1.0), 1.0) * table]
