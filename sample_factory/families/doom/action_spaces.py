"""Action spaces as groups of engine buttons, in the order in which a scenario's .cfg lists the buttons."""

import copy
from collections.abc import Callable, Sequence
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
    """Returns the groups of a single Discrete action of `num_choices` choices: choice 0 presses no button,
    each further choice one button."""
    return (Press(num_choices),)


def num_buttons(groups: ActionGroups) -> int:
    """Returns the number of engine buttons that the groups control together."""
    return sum(len(_converter(group)(0)) for group in groups)


def action_space(groups: ActionGroups) -> spaces.Space[Any]:
    """Returns a new action space: a Tuple of the spaces of the groups; for one group, its space alone."""
    copies = copy.deepcopy(groups)  # an env may seed its space
    return copies[0] if len(copies) == 1 else spaces.Tuple(copies)


def button_decoder(groups: ActionGroups) -> Callable[[Any], list[float]]:
    """Returns a function from an action to the values of the engine's buttons, group by group.

    An action is an integer for a single group, otherwise a sequence or array with one number per group.
    Integers may be given as floats. The function raises IndexError for a choice beyond its group, and
    ValueError for an action of the wrong length.
    """
    converters = [_converter(group) for group in groups]
    if len(converters) == 1:
        return converters[0]

    def button_values(action: Any) -> list[float]:
        values: Sequence[Any] = action.tolist() if isinstance(action, np.ndarray) else action
        pairs = zip(converters, values, strict=True)
        return [button for convert, value in pairs for button in convert(value)]

    return button_values


def _converter(group: spaces.Discrete | spaces.Box) -> Callable[[Any], list[float]]:
    """Returns a function from an action in a group's space to the values of the group's buttons."""
    if isinstance(group, spaces.Box):
        # In an action of a Gymnasium Tuple the number is an array of one element.
        return lambda value: [min(max(float(np.asarray(value).item()), -1.0), 1.0) * DEGREES]
    rows = group.values[:, None] if isinstance(group, Discretized) else np.eye(int(group.n))[:, 1:]
    table: list[list[float]] = rows.tolist()
    return lambda choice: table[int(choice)]
