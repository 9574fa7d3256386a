"""A player's observation of Generals as planes for convolutions, and the actions that are allowed.

Compiled by Numba, which the package needs anyway: in NumPy, small maps would take ten times as long.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from generals.core.config import DIRECTIONS
from generals.core.game import Game

Function = TypeVar("Function", bound=Callable[..., Any])
compiled: Callable[[Function], Function] = numba.njit(cache=True)

NUM_DIRECTIONS = len(DIRECTIONS)
MOVES_PER_FIELD = 2 * NUM_DIRECTIONS  # all but one of the armies, or half of them, in each direction
OFFSETS = np.array([direction.value for direction in DIRECTIONS])  # rows down, columns to the right
# Planes from "time" on have the same number on every field.
_VISIBLE = """
    own_army enemy_army neutral_army own enemy neutral mountain city own_general enemy_general fog
    structure_in_fog on_map time time_since_growth odd_turn army_ratio land_ratio land_share
"""
# Planes from "enemy_land_gain" on have the same number on every field.
_MEMORY = """
    known_mountain known_city known_enemy_general seen_before last_seen_enemy last_seen_enemy_army
    time_since_seen last_source last_target enemy_land_gain enemy_army_gain
"""
VISIBLE_PLANES = tuple(_VISIBLE.split())
MEMORY_PLANES = tuple(_MEMORY.split())
NUM_VISIBLE = len(VISIBLE_PLANES)
# Indices of planes. Those of armies and owners follow each other: own, enemy's, neutral.
FIRST_ARMY = VISIBLE_PLANES.index("own_army")
ENEMY_ARMY = VISIBLE_PLANES.index("enemy_army")
FIRST_OWNER = VISIBLE_PLANES.index("own")
ENEMY = VISIBLE_PLANES.index("enemy")
MOUNTAIN = VISIBLE_PLANES.index("mountain")
CITY = VISIBLE_PLANES.index("city")
FIRST_GENERAL = VISIBLE_PLANES.index("own_general")
ENEMY_GENERAL = VISIBLE_PLANES.index("enemy_general")
FOG = VISIBLE_PLANES.index("fog")
STRUCTURE_IN_FOG = VISIBLE_PLANES.index("structure_in_fog")
ON_MAP = VISIBLE_PLANES.index("on_map")
FIRST_NUMBER = VISIBLE_PLANES.index("time")
NUM_FIELD_MEMORIES = MEMORY_PLANES.index("last_source")
FIRST_GAIN = NUM_VISIBLE + MEMORY_PLANES.index("enemy_land_gain")
GROWTH_PERIOD = 50  # turns; then every field that is owned gets an army
LOG2_SCALE = 1 / 6  # 63 armies are 1
MEMORY_TURNS = 50  # after which the plane time_since_seen is 1


class Move(NamedTuple):
    """Describes an action of the package `generals`: armies move from (row, column) to the next field
    in a direction.

    is_pass, is_split: 0 or 1; a split moves half of the armies, otherwise one army stays.
    """

    is_pass: int
    row: int
    column: int
    direction: int
    is_split: int


PASS = Move(1, 0, 0, 0, 0)


def num_actions(side: int) -> int:
    """Returns the number of actions on a map of side x side fields; the last one is to pass."""
    return MOVES_PER_FIELD * side * side + 1


def to_move(action: int, side: int) -> Move:
    """Converts an action, the index (2 * direction + is_split) * side^2 + row * side + column, to a move."""
    plane, field = divmod(action, side * side)
    if plane == MOVES_PER_FIELD:
        return PASS
    return Move(0, *divmod(field, side), *divmod(plane, 2))


def to_action(move: "np.ndarray | Move", side: int) -> int:
    """Returns the action that makes a move, the inverse of `to_move`."""
    is_pass, row, column, direction, is_split = (int(part) for part in move)
    if is_pass:
        return num_actions(side) - 1
    return (2 * direction + is_split) * side * side + row * side + column


class MapObserver:
    """Makes the observations of one player, and remembers what the player has seen.

    side: height and width of the planes. with_memory: adds MEMORY_PLANES to VISIBLE_PLANES.
    """

    def __init__(self, side: int, with_memory: bool, time_limit: int):
        self.num_planes = NUM_VISIBLE + with_memory * len(MEMORY_PLANES)
        self._side = side
        self._with_memory = with_memory
        self._time_limit = time_limit
        self.reset()

    def reset(self) -> None:
        """Clears the memory, for a new game."""
        self._memory = np.zeros((NUM_FIELD_MEMORIES, self._side, self._side), np.float32)
        self._enemy_land = 1
        self._enemy_army = 1

    def observe(self, game: Game, player: str, enemy: str, last_move: Move) -> tuple[np.ndarray, np.ndarray]:
        """Returns planes, [num_planes, side, side] float32, and the action mask, [num_actions] int8. To be
        called once a turn.

        A field with at least two armies can be left in each direction that leads neither into a mountain nor
        off the map. Passing is always allowed. last_move: the last move of `player`.
        """
        side = self._side
        planes = np.zeros((self.num_planes, side, side), np.float32)
        mask = np.zeros(num_actions(side), np.int8)
        mask[-1] = 1
        channels = game.channels
        armies = channels.armies
        own = channels.ownership[player]
        theirs = channels.ownership[enemy]
        structures = (channels.generals, channels.cities, channels.mountains)
        counts = _draw_visible(armies, own, theirs, *structures, game.time, self._time_limit, planes)
        _mark_allowed(armies, own, channels.mountains, mask[:-1].reshape(NUM_DIRECTIONS, 2, side, side))
        if self._with_memory:
            gains = (counts[0] - self._enemy_land, counts[1] - self._enemy_army)
            _remember(planes, game.time, self._memory, *last_move[:4], *gains)
            self._enemy_land, self._enemy_army = counts
        return planes, mask


@compiled
def _draw_visible(
    armies: np.ndarray,
    own: np.ndarray,
    enemy: np.ndarray,
    generals: np.ndarray,
    cities: np.ndarray,
    mountains: np.ndarray,
    turn: int,
    time_limit: int,
    planes: np.ndarray,
) -> tuple[int, int]:
    """Draws VISIBLE_PLANES into `planes`. Returns the enemy's land and army, which generals.io shows to both
    players.

    armies: [height, width] int. own, enemy, generals, cities, mountains: [height, width] bool.
    """
    height, width = armies.shape
    side = planes.shape[1]
    land = np.zeros(3, np.int64)  # own, the enemy's, neutral
    army = np.zeros(3, np.int64)
    for row in range(side):
        for column in range(side):
            place = (row, column)
            if row >= height or column >= width:
                planes[MOUNTAIN, row, column] = 1
                continue
            owner = 0 if own[place] else 1 if enemy[place] else 2
            land[owner] += 1
            army[owner] += armies[place]
            planes[ON_MAP, row, column] = 1
            if not own[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].any():
                is_structure = cities[place] or mountains[place]
                planes[STRUCTURE_IN_FOG if is_structure else FOG, row, column] = 1
                continue
            planes[MOUNTAIN, row, column] = mountains[place]
            planes[CITY, row, column] = cities[place]
            if not mountains[place]:
                planes[FIRST_ARMY + owner, row, column] = math.log2(1.0 + armies[place]) * LOG2_SCALE
                planes[FIRST_OWNER + owner, row, column] = 1
                if generals[place] and owner < 2:
                    planes[FIRST_GENERAL + owner, row, column] = 1
    planes[FIRST_NUMBER] = turn / time_limit
    planes[FIRST_NUMBER + 1] = turn % GROWTH_PERIOD / GROWTH_PERIOD
    planes[FIRST_NUMBER + 2] = turn % 2
    planes[FIRST_NUMBER + 3] = _log_ratio(army[0], army[1])
    planes[FIRST_NUMBER + 4] = _log_ratio(land[0], land[1])
    planes[FIRST_NUMBER + 5] = land[0] / (height * width)
    return land[1], army[1]


@compiled
def _log_ratio(own: int, enemy: int) -> float:
    """Returns log2(own / enemy), clipped to -3 to 3. A count of 0 counts as 1."""
    ratio = math.log2(max(own, 1) / max(enemy, 1))
    return min(max(ratio, -3.0), 3.0)


@compiled
def _mark_allowed(armies: np.ndarray, own: np.ndarray, mountains: np.ndarray, mask: np.ndarray) -> None:
    """Sets the entries of allowed moves in `mask` to 1. mask: [direction, is_split, side, side], zeros.
    armies, own, mountains: as in `_draw_visible`."""
    height, width = armies.shape
    for row in range(height):
        for column in range(width):
            if not own[row, column] or armies[row, column] < 2:
                continue
            for direction in range(NUM_DIRECTIONS):
                i = row + OFFSETS[direction, 0]
                j = column + OFFSETS[direction, 1]
                if 0 <= i < height and 0 <= j < width and not mountains[i, j]:
                    mask[direction, :, row, column] = 1


@compiled
def _remember(
    planes: np.ndarray,
    turn: int,
    memory: np.ndarray,
    is_pass: int,
    row: int,
    column: int,
    direction: int,
    enemy_land_gain: int,
    enemy_army_gain: int,
) -> None:
    """Updates the memory from the visible planes, and draws MEMORY_PLANES into `planes`.

    memory: [NUM_FIELD_MEMORIES, side, side]: the first of MEMORY_PLANES, up to `time_since_seen`; in place of
        this plane, the turn in which each field was last seen.
    is_pass to direction: the player's last move.
    enemy_land_gain, enemy_army_gain: by how much the enemy's land and army have grown since the turn before.
    """
    side = planes.shape[1]
    for i in range(side):
        for j in range(side):
            if planes[FOG, i, j] == 0 and planes[STRUCTURE_IN_FOG, i, j] == 0:  # visible now
                memory[0, i, j] = planes[MOUNTAIN, i, j]
                memory[1, i, j] = planes[CITY, i, j]
                memory[2, i, j] = max(memory[2, i, j], planes[ENEMY_GENERAL, i, j])
                memory[3, i, j] = 1
                memory[4, i, j] = planes[ENEMY, i, j]
                memory[5, i, j] = planes[ENEMY_ARMY, i, j]
                memory[6, i, j] = turn
            planes[NUM_VISIBLE + 6, i, j] = min((turn - memory[6, i, j]) / MEMORY_TURNS, 1.0)
    planes[NUM_VISIBLE : NUM_VISIBLE + 6] = memory[:6]
    if not is_pass:
        i = row + OFFSETS[direction, 0]
        j = column + OFFSETS[direction, 1]
        planes[NUM_VISIBLE + 7, row, column] = 1
        if 0 <= i < side and 0 <= j < side:  # a move off the map is not allowed, and has no effect
            planes[NUM_VISIBLE + 8, i, j] = 1
    planes[FIRST_GAIN] = min(max(enemy_land_gain / 2, -1.0), 1.0)
    planes[FIRST_GAIN + 1] = min(max(enemy_army_gain / 10, -1.0), 1.0)
