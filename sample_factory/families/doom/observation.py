"""Observations of Doom envs: resized pictures, measurements and other game variables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import vizdoom

from sample_factory.families.doom.doom_family import DoomSpec
from sample_factory.families.doom.game_configuration import scenario_game

Observation = dict[str, np.ndarray]
Resize = Callable[[np.ndarray], np.ndarray]


def make_resize(screen_shape: tuple[int, int], shape: tuple[int, int]) -> Resize:
    """Returns a function from a C-contiguous screen, [n, *screen_shape] uint8, to a new array [n, *shape].

    Shapes are (height, width). The result equals OpenCV's INTER_NEAREST.
    """
    if screen_shape == (120, 160) and shape == (72, 128):
        return _resize_default
    import cv2  # takes 0.1 s and 150 MB on disk, and the default resolution does without it

    # The pictures are too small to be split among threads, which would disturb the other processes.
    cv2.setNumThreads(0)
    size = shape[::-1]

    return lambda screen: np.stack(
        [cv2.resize(plane, size, interpolation=cv2.INTER_NEAREST) for plane in screen]
    )


def _resize_default(screen: np.ndarray) -> np.ndarray:
    """Resizes screens [n, 120, 160] uint8 to [n, 72, 128], in a third of OpenCV's time.

    The nearest neighbours are the first four of every five columns, and rows 0, 1 and 3 of every five. So
    four pixels at a time are copied as one (unaligned) 32-bit number.
    """
    row = 160
    plane = 120 * 160
    n = len(screen)
    target: np.ndarray = np.empty((n, 24, 3, 32), np.uint32)
    target[:, :, :2] = np.ndarray((n, 24, 2, 32), np.uint32, screen, 0, (plane, 5 * row, row, 5))
    target[:, :, 2] = np.ndarray((n, 24, 32), np.uint32, screen, 3 * row, (plane, 5 * row, 5))
    return target.view(np.uint8).reshape(n, 72, 128)


class Measurement(NamedTuple):
    """Describes an entry of the vector of measurements: clip(variable * scale, low, high) of a game variable,
    or `default` * scale if the engine does not report the variable."""

    variable: str
    scale: float
    low: float = -np.inf
    high: float = np.inf
    default: float = 0.0


MEASUREMENTS = (
    Measurement("SELECTED_WEAPON", 1.0, low=0.0),
    Measurement("SELECTED_WEAPON_AMMO", 1 / 15, high=5.0),
    Measurement("HEALTH", 1 / 30, low=0.0),
    Measurement("ARMOR", 1 / 30),
    Measurement("USER2", 1 / 10),  # the number of kills in the battle scenarios
    Measurement("ATTACK_READY", 1.0),
    Measurement("PLAYER_COUNT", 1 / 5, default=1.0),
    *(Measurement(f"WEAPON{slot}", 1.0, low=0.0) for slot in range(8)),
    *(Measurement(f"AMMO{slot}", 1 / 15, high=5.0) for slot in range(8)),
)
NUM_MEASUREMENTS = len(MEASUREMENTS)


def measured_variables(spec: DoomSpec) -> list[str]:
    """Returns the game variables that the measurements read: the ones that the .cfg lists, or all if it lists
    none.

    A .cfg that lists some variables leaves out the others on purpose: they have their defaults in the vector.
    """
    if not spec.measurements:
        return []
    game = scenario_game(spec.scenario_path())
    listed = {variable.name for variable in game.get_available_game_variables()}
    names = [measurement.variable for measurement in MEASUREMENTS]
    return [name for name in names if name in listed] or names


def measurement_reader(variables: Mapping[str, int]) -> Callable[[Sequence[float]], np.ndarray]:
    """Returns a function from the engine's values to the vector of measurements, [23] float32.

    variables: maps the name of each reported variable to its place in the lists of values.
    """
    vector = [m.scale * m.default for m in MEASUREMENTS]
    # A loop over the reported variables (4 in battle) costs less than five NumPy calls.
    readings = [
        (element, variables[m.variable], m.scale, m.low, m.high)
        for element, m in enumerate(MEASUREMENTS)
        if m.variable in variables
    ]

    def read(values: Sequence[float]) -> np.ndarray:
        for element, place, scale, low, high in readings:
            value = values[place] * scale
            vector[element] = low if value < low else high if value > high else value
        return np.array(vector, np.float32)

    return read


class ObservationReader:
    """Makes the observations of an agent from the states of its engine.

    space: {"obs": uint8 [3, height, width]}; in addition, if the spec has them, an entry uint8 [1 or 3,
        height, width] for each buffer (depth, labels and grey pictures have one plane), "measurements",
        float32 [23], and "variables", float32 [n].
    resolution: (width, height). screen_shape: (height, width) of the engine's pictures.
    places: maps the names of the engine's variables to their places in the lists of values.
    """

    def __init__(
        self,
        spec: DoomSpec,
        resolution: tuple[int, int],
        screen_shape: tuple[int, int],
        places: Mapping[str, int],
    ):
        size = resolution[::-1]
        self._resize = make_resize(screen_shape, size)
        self._buffers = {"obs": "screen_buffer", **{name: f"{name}_buffer" for name in spec.buffers}}
        spaces: dict[str, gymnasium.Space[Any]] = {}
        for name in self._buffers:
            planes = 1 if spec.grey or name in ("depth", "labels") else 3
            spaces[name] = gymnasium.spaces.Box(0, 255, (planes, *size), np.uint8)
        self._measure: Callable[[Sequence[float]], np.ndarray] | None = None
        if spec.measurements:
            self._measure = measurement_reader({name: places[name] for name in measured_variables(spec)})
            spaces["measurements"] = gymnasium.spaces.Box(-np.inf, np.inf, (NUM_MEASUREMENTS,), np.float32)
        self._observed = [places[name] for name in spec.variables]
        if self._observed:
            spaces["variables"] = gymnasium.spaces.Box(-np.inf, np.inf, (len(self._observed),), np.float32)
        self.space = gymnasium.spaces.Dict(spaces)

    def read(self, state: vizdoom.GameState, values: Sequence[float]) -> Observation:
        """Returns the observation of a state, in new arrays. values: the engine's variables in this state."""
        observation = {}
        for name, buffer in self._buffers.items():
            picture = getattr(state, buffer)
            observation[name] = self._resize(picture if picture.ndim == 3 else picture[None])
        if self._measure is not None:
            observation["measurements"] = self._measure(values)
        if self._observed:
            observation["variables"] = np.array([values[place] for place in self._observed], np.float32)
        return observation
